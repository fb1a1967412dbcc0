"""Where blobs are kept, how large they may be, and for how long."""

from __future__ import annotations

import msgspec

GIB = 1_073_741_824


class BlobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said about blobs; the section `[blobs]` of the project file."""

    directory: str | None = None
    """A folder that every server and every worker on the store itself can write to."""
    url: str | None = None
    """Instead of a folder: a bucket, `s3://BUCKET/PREFIX`."""
    endpoint: str | None = None
    """Where the bucket is, when it is not at Amazon: `https://minio.example.org`."""
    region: str = "us-east-1"
    max_blob_bytes: int = GIB
    max_bytes: int = 20 * GIB
    """Of all of them together."""
    keep_days: float = 30.0
    max_cache_bytes: int = 5 * GIB
    """Of all caches together, which come on top; those that were unused the longest make room."""
    keep_cache_days: float = 7.0
    """A cache that nobody has used for so long goes."""
