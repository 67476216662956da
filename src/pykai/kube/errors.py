"""What an API server answers when it does not do what it was asked, as exceptions one can catch by name.

The in-memory server raises the same classes for the same causes; a caller never looks at a number.
Conflict and AlreadyExists are both status 409 and differ in the `reason` of the server's Status.
"""

# ruff: noqa: N818 - the names are the server's reasons, which callers know

from __future__ import annotations

from collections.abc import Mapping

from pykai.kube.api import Fields, Object


class ApiError(Exception):
    """An error Status of the server: `status` is the HTTP code, `reason` and `details` are its fields.

    Itself it stands for an internal error (500), with which the server also answers some requests that are wrong.
    """

    status = 500
    reason = "InternalError"

    def __init__(
        self, message: str, *, details: Fields | None = None, status: int | None = None, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details: Object = dict(details or {})
        self.status = self.status if status is None else status
        self.reason = reason or self.reason


class BadRequest(ApiError):
    """The request could not be understood."""

    status, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The credentials are missing, wrong or expired."""

    status, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The credentials are known and do not allow this, or an admission rule denies it."""

    status, reason = 403, "Forbidden"


class NotFound(ApiError):
    """The object, its namespace or its whole kind does not exist."""

    status, reason = 404, "NotFound"


class NotAllowed(ApiError):
    """The verb does not exist for this resource."""

    status, reason = 405, "MethodNotAllowed"


class Conflict(ApiError):
    """The object changed since it was read, a precondition failed, or another manager owns an applied field."""

    status, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    """An object of this name exists."""

    status, reason = 409, "AlreadyExists"


class Gone(ApiError):
    """The asked resourceVersion or continue token is older than the server remembers: list again."""

    status, reason = 410, "Expired"


class Unsupported(ApiError):
    """The server does not know the patch type (strategic merge on a custom resource)."""

    status, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object breaks a rule of its schema; `details["causes"]` names the fields."""

    status, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """Come back later: the server is busy."""

    status, reason = 429, "TooManyRequests"

    @property
    def retry_after(self) -> float:
        """Seconds the server asks to wait; 0 where it does not say."""
        return float(self.details.get("retryAfterSeconds", 0))


class Unavailable(ApiError):
    """The server cannot be reached, or is not able to answer (502, 503)."""

    status, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    """No answer in time; the request may or may not have been carried out."""

    status, reason = 504, "Timeout"


_BY_STATUS: dict[int, type[ApiError]] = {
    kind.status: kind
    for kind in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        NotAllowed,
        Conflict,
        Gone,
        Unsupported,
        Invalid,
        TooManyRequests,
        Timeout,
    )
}


def from_status(body: Fields, status: int) -> ApiError:
    """The exception for a `Status` object, which a proxy may have written: what cannot be read in it does not count.

    `status` is the HTTP code, used where the body names none.
    """
    named = body.get("code")
    code = named if isinstance(named, int) and named >= 400 else status
    reason = str(body.get("reason") or "")
    kind = _BY_STATUS.get(code, Unavailable if code > 500 else ApiError)
    if code == 409 and reason == AlreadyExists.reason:
        kind = AlreadyExists
    message = str(body.get("message") or reason or f"the server answered {code}")
    return kind(message, details=_details(body), status=code, reason=reason)


def _details(body: Fields) -> Object:
    found = body.get("details")
    details = dict(found) if isinstance(found, Mapping) else {}
    if not isinstance(details.get("retryAfterSeconds", 0), int | float):
        del details["retryAfterSeconds"]
    return details
