"""Altinity's settings: each is mapped, or refused by name with what to use instead."""

from typing import Any

import pytest

from calve.model.errors import UsageError
from calve.sql import codes, settings
from calve.sql.statement import Select, parse


@pytest.mark.parametrize(
    ("name", "value", "options", "known"),
    [
        ("export_merge_tree_partition_force_export", "1", {"force": True}, "skip"),
        ("export_merge_tree_partition_force_export", "0", {}, "skip"),
        ("export_merge_tree_part_overwrite_file_if_exists", "true", {"force": True}, "skip"),
        ("export_merge_tree_part_file_already_exists_policy", "skip", {}, "skip"),
        ("export_merge_tree_part_file_already_exists_policy", "overwrite", {"force": True}, "skip"),
        ("export_merge_tree_part_file_already_exists_policy", "error", {}, "throw_first"),
        ("export_merge_tree_part_throw_on_pending_mutations", "1", {"mutations": "refuse"}, "skip"),
        ("export_merge_tree_part_throw_on_pending_mutations", "0", {"mutations": "ignore"}, "skip"),
        ("export_merge_tree_part_throw_on_pending_patch_parts", "0", {"mutations": "ignore"}, "skip"),
        ("export_merge_tree_part_max_bytes_per_file", "1048577", {"file_mb": 2}, "skip"),
        ("export_merge_tree_part_max_bytes_per_file", "0", {}, "skip"),
        ("export_merge_tree_partition_all_on_error", "skip_conflicts", {}, "skip"),
        ("export_merge_tree_partition_all_on_error", "collect", {}, "collect"),
        ("export_merge_tree_partition_all_on_error", "throw_first", {}, "throw_first"),
        ("output_format_parquet_compression_method", "none", {"codec": "uncompressed"}, "skip"),
        ("output_format_parquet_compression_method", "ZSTD", {"codec": "zstd"}, "skip"),
        ("allow_experimental_export_merge_tree_part", "1", {}, "skip"),
        ("allow_insert_into_iceberg", "1", {}, "skip"),
        ("export_merge_tree_partition_system_table_prefer_remote_information", "0", {}, "skip"),
    ],
)
def test_a_setting_that_we_have_is_mapped(name: str, value: str, options: dict[str, Any], known: str) -> None:
    assert settings.read([(name, value)]) == settings.ExportSettings(options=options, known=known)


@pytest.mark.parametrize("name", sorted(settings._ELSEWHERE))
def test_a_setting_that_we_do_in_another_way_is_refused_with_the_way(name: str) -> None:
    with pytest.raises(UsageError, match=name) as refused:
        settings.read([(name, "1")])
    assert refused.value.hint
    assert codes.known(refused.value).number == 115


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        (
            "export_merge_tree_partition_force_exports",
            "1",
            "did you mean export_merge_tree_partition_force_export",
        ),
        ("max_threads", "1", "docs/sql.md"),
        ("allow_experimental_export_merge_tree_part", "0", "omit"),
        ("export_merge_tree_partition_force_export", "yes", "0 or 1"),
        ("export_merge_tree_part_max_bytes_per_file", "-1", "whole number"),
        ("export_merge_tree_part_file_already_exists_policy", "replace", "'skip'"),
    ],
)
def test_an_unknown_setting_or_value_is_refused(name: str, value: str, hint: str) -> None:
    with pytest.raises(UsageError, match=name) as refused:
        settings.read([(name, value)])
    assert hint in refused.value.hint
    assert refused.value.code == codes.SETTING


def test_two_settings_that_contradict_each_other_are_refused() -> None:
    both = [
        (f"export_merge_tree_part_throw_on_pending_{what}", value)
        for what, value in (("mutations", "1"), ("patch_parts", "0"))
    ]
    with pytest.raises(UsageError, match="mutations = ignore"):
        settings.read(both)


def test_a_look_that_asks_for_fresh_information_needs_none() -> None:
    """Altinity's own tests end every look at these tables with it."""
    text = "SELECT status FROM system.exports SETTINGS export_merge_tree_partition_system_table_prefer_remote_information = 1"
    assert parse(text) == Select(sql="SELECT status FROM system.exports")
