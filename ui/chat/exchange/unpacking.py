"""Files out of a zip that somebody sent, however it was made."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator

from ui.chat.exchange.fields import BrokenEntryError

_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")
_ENDINGS = (".md", ".markdown", ".json")


def is_zip(content: bytes) -> bool:
    return content.startswith(_SIGNATURES)


def files_of_zip(
    content: bytes, max_unpacked_bytes: int, max_files: int
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each text file; others, and zips in the zip, are passed over.

    What the zip says about its sizes is not believed: no more is unpacked than may be.

    Raises:
        BrokenEntryError: it is damaged, encrypted, or too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [item for item in archive.infolist() if _is_wanted(item)]
            if len(names) > max_files:
                raise BrokenEntryError(f"it holds more than {max_files:,} files: split it.")
            num_left = max_unpacked_bytes
            for item in names:
                with archive.open(item) as packed:
                    unpacked = packed.read(num_left + 1)
                num_left -= len(unpacked)
                if num_left < 0:
                    raise BrokenEntryError(
                        f"it unpacks to more than {max_unpacked_bytes // 1024**2} MB: split it."
                    )
                yield item.filename.rpartition("/")[2], unpacked
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise BrokenEntryError(f"the zip is damaged ({error}).") from None
    except (NotImplementedError, RuntimeError):
        raise BrokenEntryError("the zip is encrypted or packed in an unusual way.") from None


def _is_wanted(item: zipfile.ZipInfo) -> bool:
    """Archives of a Mac hold a second, unreadable file beside each."""
    is_text = item.filename.lower().endswith(_ENDINGS)
    return is_text and not item.is_dir() and not item.filename.startswith("__MACOSX/")
