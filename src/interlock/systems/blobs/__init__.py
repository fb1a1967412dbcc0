"""Large things that belong to records and are not in them: kept under the digest of what they say."""

from interlock.systems.blobs.directory import DirectoryBlobs
from interlock.systems.blobs.places import blobs_for, caches_for
from interlock.systems.blobs.port import Blob, Blobs
from interlock.systems.blobs.settings import BlobSettings

__all__ = ["Blob", "BlobSettings", "Blobs", "DirectoryBlobs", "blobs_for", "caches_for"]
