"""Each name that is left at a destination is read back, and nobody else's is taken for one."""

import pytest

from calve.destination.names import CommitName, DataFileName, is_metadata_of, is_receipt, process_of

OURS = DataFileName(process_id="abc2", task=3, attempt=2, number=14)


@pytest.mark.parametrize(
    "before", ["", "file:///lake/data/", "s3://b/data/0110/1010/month=1/", "s3://b/0110/month=1-"]
)
def test_a_data_file_s_name_is_read_back(before: str) -> None:
    assert str(OURS) == "calve-abc2-3-2-14.parquet"
    assert DataFileName.parse(f"{before}{OURS}") == OURS
    assert process_of(f"{before}{OURS}") == "abc2"


@pytest.mark.parametrize(
    "name",
    [
        "part-00000.parquet",
        "xcalve-abc2-3-2-14.parquet",
        "calve-abc2-3-2.parquet",
        "calve-abc2-3-2-14.parquet.tmp",
        "calve-abc2-3-2-14.parquet/other.parquet",
        "calve-ABC2-3-2-14.parquet",
    ],
)
def test_D15_a_file_of_someone_else_is_not_ours(name: str) -> None:
    assert DataFileName.parse(f"s3://b/data/{name}") is None


def test_a_commit_s_name_is_read_back() -> None:
    name = CommitName(key="0a1f", generation=12)
    assert str(name) == "0a1f.12.json"
    assert CommitName.parse(f"s3://b/out/_calve/commits/{name}") == name
    assert CommitName.parse("s3://b/out/_calve/commits/0a1f.json") is None


def test_metadata_and_receipts_tell_their_process() -> None:
    assert is_metadata_of("abc2", "s3://b/t/metadata/calve-abc2-123-m0.avro")
    assert is_metadata_of("abc2", "s3://b/t/metadata/snap-123-0-calve-abc2.avro")
    assert not is_metadata_of("abc", "s3://b/t/metadata/calve-abc2-123-m0.avro")
    assert is_receipt("s3://b/t/metadata/calve/abc2/0-1.json")
    assert process_of("s3://b/t/metadata/calve/abc2/0-1.json") == "abc2"
    assert process_of("s3://b/t/metadata/snap-123-0-calve-abc2.avro") == "abc2"
    assert process_of("s3://b/t/metadata/snap-123-0-calve-fence-abc2.avro") == "abc2"
    assert not is_metadata_of("abc2", "s3://b/t/metadata/snap-123-0-calve-fence-abc2.avro"), (
        "it may be needed"
    )
    assert process_of("s3://b/t/metadata/00001-abc.metadata.json") is None
