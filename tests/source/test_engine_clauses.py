from calve.clickhouse.sql.create_table import parse


def test_every_clause_is_found_and_quotes_and_brackets_do_not_mislead() -> None:
    clause = parse(
        "ReplicatedReplacingMergeTree('/clickhouse/{shard}/ORDER BY', '{replica}', ver) "
        "PARTITION BY (toYYYYMM(d), 'TTL x') PRIMARY KEY a ORDER BY tuple(a DESC, b) SAMPLE BY b "
        "TTL d + toIntervalDay(1) SETTINGS index_granularity = 100, storage_policy = 'a, b'"
    )
    assert (clause.family, clause.family_arguments, clause.replicated) == (
        "ReplacingMergeTree",
        ("ver",),
        True,
    )
    assert clause.partition_by == "(toYYYYMM(d), 'TTL x')"
    assert (clause.primary_key, clause.order_by, clause.sample_by) == ("a", "tuple(a DESC, b)", "b")
    assert clause.ttl == "d + toIntervalDay(1)"
    assert clause.settings == {"index_granularity": "100", "storage_policy": "'a, b'"}
    assert not clause.old_syntax


def test_the_old_syntax_is_known_by_its_granularity() -> None:
    clause = parse("ReplicatedMergeTree('/path', 'r', d, intHash32(k), (k, intHash32(k)), 8192)")
    assert clause.old_syntax
    assert clause.family_arguments == ("d", "intHash32(k)", "(k, intHash32(k))", "8192")


def test_a_replicated_table_without_arguments_has_none() -> None:
    assert parse("SharedMergeTree ORDER BY id").family_arguments == ()
    assert parse("ReplicatedSummingMergeTree('/p', 'r') ORDER BY id").family_arguments == ()
