"""The SQL that keeps the model's rows: schema, migrations, and one file for each group of calls."""
