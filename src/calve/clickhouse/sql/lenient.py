"""A DDL that was legal at the source is legal in our engine, whatever it would advise today."""

LENIENT = {
    "allow_deprecated_syntax_for_merge_tree": "1",
    "allow_suspicious_low_cardinality_types": "1",
    "allow_suspicious_fixed_string_types": "1",
    "allow_suspicious_variant_types": "1",
    "allow_suspicious_types_in_order_by": "1",
    "allow_suspicious_primary_key": "1",
    "allow_suspicious_codecs": "1",
    "allow_suspicious_indices": "1",
    "allow_suspicious_ttl_expressions": "1",
    "allow_experimental_qbit_type": "1",
    "allow_nondeterministic_mutations": "1",
    "enable_time_time64_type": "1",
    "flatten_nested": "0",
}
