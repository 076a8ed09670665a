"""A worker is stopped between journaling a pin and taking it, and another one releases the pin meanwhile. The first wakes,
takes it, and is killed: the pin's files would stay for ever, since the journal has it as released. (Found by chaos.)"""

from programs import TABLE, Folder

from calve.clickhouse.pins import shadow
from calve.model.states import PinState

STRANGER = "calve-aaaaaaaaaaaaa-1"  # another store's


def test_L30_a_pin_that_was_taken_after_its_release_is_found_and_released(folder: Folder) -> None:
    worker = folder.worker()
    process_id = folder.submit()
    folder.wait_ended(worker, process_id)
    with folder.place.app() as app:
        (pin,) = app.store.pins(process_id)
    assert pin.state is PinState.RELEASED
    worker.kill()  # or it may find them itself
    for name in (pin.name, STRANGER):
        folder.place.execute(f"ALTER TABLE {TABLE} FREEZE WITH NAME '{name}'")
    disks = [folder.path / "clickhouse"]
    assert set(shadow.names(disks)) == {pin.name, STRANGER}
    next_one = folder.worker()
    next_one.wait_ready(lambda: shadow.names(disks) == (STRANGER,))
    next_one.wait_ready(lambda: "taken after its release" in next_one.said)
