"""A failure as a run's record keeps it: plain data."""

from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import Bucket, NotJson, TenutoError, bucket_of, bucket_of_record, cause_of


def error_record(error: BaseException) -> JSON:
    """Return an error as plain data: category, message and what is behind it.

    `cause` is the category of what it passes on; `transient` is there where the categories alone would say otherwise.
    """
    category = getattr(error, "category", type(error).__name__)
    record: dict[str, JSON] = {"category": category, "message": str(getattr(error, "message", error))}
    if cause := cause_of(error):
        record["cause"] = cause
    passes = bucket_of(error) is Bucket.RETRYABLE_TRANSIENT
    if passes is not (bucket_of_record(record) is Bucket.RETRYABLE_TRANSIENT):
        record["transient"] = passes
    public = error.public_details() if isinstance(error, TenutoError) else {}
    details = {name: value for name, value in public.items() if _is_plain(value)}
    return record | {"details": details} if details else record


def _is_plain(value: Any) -> bool:
    try:
        dumps(value)
    except NotJson:
        return False
    return True
