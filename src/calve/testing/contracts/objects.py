"""What every object storage must do (`objects.storage`), as tests: inherit, and give `storage` and `root`."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.errors import CalveError, NotFoundError, PermanentError, RefusedError
from calve.objects.storage import ObjectStore

LARGE = 11_000_000  # bytes: more than two chunks of a multipart upload
NAMES = ("a b", "p=%2F..%2Fx", "é漢🧊", "x+y&z", "month=2024-01")


class ObjectStoreContract:
    """Each test gets a folder of its own: `root`, a full URI without objects."""

    # -- conditional put ----------------------------------------------------------------------------

    def test_an_object_is_put_read_sized_listed_and_deleted(self, storage: ObjectStore, root: str) -> None:
        assert storage.put_if_absent(f"{root}/a/one", b"12345")
        assert storage.put_if_absent(f"{root}/b", b"")
        assert storage.exists(f"{root}/a/one") and storage.size(f"{root}/a/one") == 5
        assert storage.read(f"{root}/a/one") == b"12345" and storage.read(f"{root}/b") == b""
        assert storage.list(root) == storage.list(f"{root}/") == [f"{root}/a/one", f"{root}/b"]
        assert storage.sizes(f"{root}/a") == {f"{root}/a/one": 5}
        storage.delete([f"{root}/a/one", f"{root}/b"])
        assert storage.list(root) == [] and not storage.exists(f"{root}/a/one")

    def test_a_taken_name_is_refused_and_unchanged(self, storage: ObjectStore, root: str) -> None:
        assert storage.put_if_absent(f"{root}/x", b"first")
        assert not storage.put_if_absent(f"{root}/x", b"second")
        assert storage.read(f"{root}/x") == b"first"

    def test_of_racing_puts_exactly_one_wins(self, storage: ObjectStore, root: str) -> None:
        wins: list[int] = []
        barrier = threading.Barrier(8)

        def put(number: int) -> None:
            barrier.wait()
            if storage.put_if_absent(f"{root}/x", str(number).encode()):
                wins.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1 and storage.read(f"{root}/x") == str(wins[0]).encode()
        assert storage.list(root) == [f"{root}/x"]

    # -- whole or none ------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 7, LARGE])
    def test_an_upload_is_whole_and_comes_back_equal(
        self, storage: ObjectStore, root: str, tmp_path: Path, size: int
    ) -> None:
        source, back = tmp_path / "source", tmp_path / "back"
        source.write_bytes(os.urandom(size))
        storage.upload(source, f"{root}/file")
        assert storage.size(f"{root}/file") == size and storage.read(f"{root}/file") == source.read_bytes()
        storage.download(f"{root}/file", back)
        assert back.read_bytes() == source.read_bytes()

    @pytest.mark.parametrize("sizes", [(), (0,), (1,), (5 << 20, 1), (1 << 20,) * 11])
    def test_bytes_that_are_made_on_the_way(
        self, storage: ObjectStore, root: str, sizes: tuple[int, ...]
    ) -> None:
        pieces = [os.urandom(size) for size in sizes]
        for _ in range(2):
            storage.write(lambda: iter(pieces), f"{root}/made", flush=False)
            storage.flush([f"{root}/made"])
            assert storage.read(f"{root}/made") == b"".join(pieces)
        assert storage.list(root) == [f"{root}/made"]

    def test_bytes_that_cannot_be_made_leave_nothing(self, storage: ObjectStore, root: str) -> None:
        def failing() -> Iterator[bytes]:
            yield os.urandom(1 << 20)
            raise FileNotFoundError(2, "gone")

        with pytest.raises(CalveError):
            storage.write(failing, f"{root}/made")
        assert storage.list(root) == []

    def test_an_upload_may_be_made_twice_and_replaces(
        self, storage: ObjectStore, root: str, tmp_path: Path
    ) -> None:
        source = tmp_path / "source"
        for content in (b"first", b"first", b"second"):
            source.write_bytes(content)
            storage.upload(source, f"{root}/file", flush=False)
            storage.flush([f"{root}/file"])
            assert storage.read(f"{root}/file") == content
        assert storage.list(root) == [f"{root}/file"]

    def test_an_upload_of_a_missing_file_leaves_nothing(
        self, storage: ObjectStore, root: str, tmp_path: Path
    ) -> None:
        with pytest.raises(NotFoundError):
            storage.upload(tmp_path / "missing", f"{root}/other")
        assert storage.list(root) == []

    def test_a_link_is_the_file_or_refused_by_name(
        self, storage: ObjectStore, root: str, tmp_path: Path
    ) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"never changes")
        try:
            storage.link(source, f"{root}/linked")
            storage.link(source, f"{root}/linked")
        except RefusedError as refused:
            assert refused.code == "no_hard_links" and storage.list(root) == []
        else:
            storage.flush([f"{root}/linked"])
            assert storage.read(f"{root}/linked") == b"never changes"

    # -- what is missing ----------------------------------------------------------------------------

    def test_missing_objects_and_folders(self, storage: ObjectStore, root: str, tmp_path: Path) -> None:
        assert storage.list(f"{root}/nothing") == [] and storage.sizes(f"{root}/nothing") == {}
        assert not storage.exists(f"{root}/nothing")
        for call in (storage.read, storage.size, lambda uri: storage.download(uri, tmp_path / "x")):
            with pytest.raises(NotFoundError):
                call(f"{root}/nothing")

    def test_deleting_what_is_gone_is_not_an_error_and_the_rest_goes(
        self, storage: ObjectStore, root: str
    ) -> None:
        storage.put_if_absent(f"{root}/b", b"x")
        for _ in range(2):
            storage.delete([f"{root}/a", f"{root}/b", f"{root}/c"])
            assert storage.list(root) == []
        storage.delete([])

    # -- names --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("name", NAMES)
    def test_L8_uris_are_taken_literally_and_never_decoded(
        self, storage: ObjectStore, root: str, name: str
    ) -> None:
        assert storage.put_if_absent(f"{root}/{name}/f", b"x")
        assert storage.list(root) == [f"{root}/{name}/f"] and storage.read(f"{root}/{name}/f") == b"x"

    def test_a_folder_is_not_the_prefix_of_another(self, storage: ObjectStore, root: str) -> None:
        storage.put_if_absent(f"{root}/month/x", b"x")
        storage.put_if_absent(f"{root}/month-of-another/x", b"x")
        assert storage.list(f"{root}/month") == [f"{root}/month/x"]

    def test_T9_no_name_leads_outside(self, storage: ObjectStore, root: str, tmp_path: Path) -> None:
        storage.put_if_absent(f"{root}/x", b"x")
        for call in (
            lambda uri: storage.put_if_absent(uri, b"y"),
            storage.read,
            storage.list,
            lambda uri: storage.delete([uri]),
            lambda uri: storage.upload(tmp_path / "none", uri),
        ):
            with pytest.raises(PermanentError) as error:
                call(f"{root}/inner/../x")
            assert error.value.code == "storage_uri"
        assert storage.read(f"{root}/x") == b"x"

    def test_it_says_what_becomes_of_incomplete_uploads(self, storage: ObjectStore, root: str) -> None:
        found = storage.upload_cleanup(root)
        assert found.words and (found.automatic or found.remedy)
