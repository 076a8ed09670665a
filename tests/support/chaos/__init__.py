"""Chaos: real programs and real services, broken on purpose while clients ask for work; then everything is read by value.

`ledger` knows which rows were written, `chronicle` what became of the lake's tables, `evidence` what is there at the
end, and `check` compares them: it knows no step of the product. `schedule` is made of a seed before anything starts;
`nemesis`, `clients`, `writer` and `foreign` carry it out; `fleet` starts again what was killed.
"""
