"""docs/reference/config.md: every section and key."""

from calve.app.config import tree
from calve.app.config.sections import NAMED_SECTIONS, PLAIN_SECTIONS, Section
from calve.app.config.template import toml_value

HEAD = """\
# Configuration

`calve.toml` in the working folder, or `--config PATH`, or `CALVE_CONFIG`. `calve init` writes one
with every key explained; `calve config` shows each value and where it came from. Relative paths
are relative to the file: `chdb://folder`, `sqlite:///file` and a folder as `warehouse` or backup
`url` are; `chdb:///folder` and `sqlite:////file` are absolute.

An unknown key is an error with a suggestion, except under `[catalog.…]` and `[spark.conf]`, which
are passed on unchanged. Any secret may be given as a file that contains it, `password_file` for
`password`, `"s3.secret-access-key_file"` for `"s3.secret-access-key"`; secrets are never printed.

## Environment

Every key has an environment form, which wins over the file:

```text
"""

CATALOG = """\
## [catalog.NAME]

An Iceberg catalog; the keys are PyIceberg's own. The same entry configures PyIceberg and Spark.

| key | meaning |
| --- | --- |
| `type` | `sql`, `rest`, `glue` or `hive` |
| `uri` | the database of an SQL catalog, or the address of the service |
| `warehouse` | where tables are created; of a REST catalog, the name its server knows |
| `s3.endpoint`, `s3.region`, `s3.access-key-id`, `s3.secret-access-key`, … | object storage |
| anything else | see PyIceberg's documentation |
"""


def page() -> str:
    forms = (tree.__doc__ or "").split("\n\n")
    shown = "\n".join(line.removeprefix("    ") for line in forms[1].splitlines())
    parts = [HEAD + shown + "\n```\n\n" + forms[2].strip() + "\n"]
    for name, section in NAMED_SECTIONS.items():
        parts.append(_section(f"[{name}.NAME]", section) if section else CATALOG)
    parts += [_section(f"[{name}]", section) for name, section in PLAIN_SECTIONS.items()]
    return "\n".join(parts)


def _section(title: str, section: type[Section]) -> str:
    lines = [
        f"## {title}",
        "",
        (section.__doc__ or "").splitlines()[0],
        "",
        "| key | default | meaning |",
        "| --- | --- | --- |",
    ]
    for name, info in section.model_fields.items():
        if f"{title[1:-1]}.{name}" in NAMED_SECTIONS:
            continue
        default = "required" if info.is_required() else f"`{toml_value(info.default)}`"
        lines.append(f"| `{name}` | {default} | {info.description} |")
    return "\n".join(lines) + "\n"
