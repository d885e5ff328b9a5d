from __future__ import annotations

import pytest

from rlwire.codecs.rfb.encodings import Encoding, compress_level, quality_level


def test_levels() -> None:
    assert [quality_level(i) for i in (0, 9)] == [Encoding.QUALITY_0, Encoding.QUALITY_9]
    assert [compress_level(i) for i in (0, 9)] == [Encoding.COMPRESS_0, Encoding.COMPRESS_9]
    with pytest.raises(ValueError, match="quality must be 0 to 9, not 10"):
        quality_level(10)
