"""Whether an answer is whole. A server that fails in mid-stream has already said 200 OK.

From 25.11 on it writes a block between `__exception__` and a tag that a header announces;
before, the bare text of the exception, and the very old ones then end the body as if it were
complete. So the end of every body is looked at.
"""

import re

TAG_HEADER = "X-ClickHouse-Exception-Tag"
_MARK = b"__exception__\r\n"
_TAIL_BYTES = 65_536
_BARE = re.compile(rb"Code: \d+(?:\. DB::|, e\.displayText\(\) = DB::)\w*Exception: ")


def exception_in(body: bytes, tag: str | None) -> str | None:
    """The exception that ended the body, if one did."""
    tail = body[-_TAIL_BYTES:]
    if tag:
        start = tail.rfind(_MARK + tag.encode())
        if start < 0:
            return None
        block = tail[start + len(_MARK) + len(tag) :].decode("utf-8", "replace")
        return block.rpartition(f" {tag}")[0].rpartition("\n")[0].strip() or block.strip()
    found = list(_BARE.finditer(tail))
    if not found:
        return None
    # Data may hold such a text too (a log table); only one that runs to the very end, on its own, is
    # the server's. JSON escapes a line's end inside of a value, so a quote behind it is data's.
    text = tail[found[-1].start() :]
    if text.rstrip().endswith((b'"]', b'"}', b"]", b"}")):
        return None
    return text.decode("utf-8", "replace").strip()
