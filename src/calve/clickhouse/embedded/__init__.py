"""An embedded source: one ClickHouse data folder, opened briefly by a child process."""
