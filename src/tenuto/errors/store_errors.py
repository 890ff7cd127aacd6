"""The store itself cannot do its work."""

from typing import Any

from tenuto.errors.base import Bucket, Public, TenutoError, of_cause


class StoreError(TenutoError):
    """The store cannot do its work."""


class StoreUnavailable(StoreError):
    """The database cannot be reached now; what was in flight is resolved by repeating its operation id."""

    category = "store_unavailable"
    bucket = Bucket.RETRYABLE_TRANSIENT


class StoreClosed(StoreUnavailable):
    """The store was closed."""

    bucket = Bucket.USER_CORRECTABLE


class StoreFull(StoreUnavailable):
    """There is no room left on the database's disk; nothing of the commit was written."""

    category = "store_full"


class StoreContended(StoreError):
    """Others kept the database busy for too long; repeat the call unchanged."""

    category = "store_contended"
    bucket = Bucket.RETRYABLE_TRANSIENT


class StoreUnusable(StoreError):
    """The address does not lead to a database this store can use."""

    category = "store_unusable"


class SchemaMismatch(StoreError):
    """The database's tables and the code are of different versions."""

    category = "store_schema_mismatch"
    found: Public[int]
    expected: Public[int]


class StoredDataCorrupt(StoreError):
    """Something stored cannot be read as what it should be."""

    category = "stored_data_corrupt"
    bucket = Bucket.SESSION_TERMINATING


class UsageOutOfRange(StoreError):
    """A sum of usage is beyond what can be counted exactly."""

    category = "usage_out_of_range"


class UpkeepFailed(StoreError):
    """An upkeep verb stopped part-way; `report` counts what it had done by then."""

    category = "upkeep_failed"
    bucket = of_cause(Bucket.RETRYABLE_TRANSIENT)
    report: Any
