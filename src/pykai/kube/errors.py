"""Error responses of an API server as exceptions, one class per reason.

The in-memory server raises the same classes for the same causes; callers never compare status codes. Conflict and
AlreadyExists are both status 409 and differ in the `reason` of the server's Status.
"""

# ruff: noqa: N818 - the names are the server's reasons, which callers know

from __future__ import annotations

from collections.abc import Mapping

from pykai.kube.api import Fields, Object


class ApiError(Exception):
    """An error Status of the server: `status` is the HTTP code, `reason` and `details` are its fields.

    The class itself is an internal error (500), which the server also returns for some invalid requests.
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

    @property
    def retry_after(self) -> float:
        """Return the seconds after which the server asks to retry; 0 if it does not say."""
        return float(self.details.get("retryAfterSeconds") or 0)


class BadRequest(ApiError):
    """The request could not be understood."""

    status, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The credentials are missing, wrong or expired."""

    status, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The user is authenticated but not authorized, or admission denies the request."""

    status, reason = 403, "Forbidden"


class NotFound(ApiError):
    """The object, its namespace or its whole kind does not exist."""

    status, reason = 404, "NotFound"


class NotAllowed(ApiError):
    """The verb does not exist for this resource."""

    status, reason = 405, "MethodNotAllowed"


class Conflict(ApiError):
    """The object changed since it was read, or a precondition failed."""

    status, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    """An object of this name exists."""

    status, reason = 409, "AlreadyExists"


class Gone(ApiError):
    """The requested resourceVersion or continue token has expired: list again."""

    status, reason = 410, "Expired"


class Unsupported(ApiError):
    """The server does not support the patch type (strategic merge on a custom resource)."""

    status, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object violates its schema; `details["causes"]` names the fields."""

    status, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """The server is overloaded or limits the rate: retry later."""

    status, reason = 429, "TooManyRequests"


class Unavailable(ApiError):
    """The server cannot be reached or is unavailable (502, 503)."""

    status, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    """No response in time; the request may or may not have been carried out."""

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
    """Return the exception for a `Status` object; unreadable fields are ignored, because a proxy may have written it.

    `status` is the HTTP code, used if the body has none.
    """
    named = body.get("code")
    code = named if isinstance(named, int) and named >= 400 else status
    reason = str(body.get("reason") or "")
    kind = _BY_STATUS.get(code, Unavailable if code > 500 else ApiError)
    if code == 409 and reason == AlreadyExists.reason:
        kind = AlreadyExists
    message = str(body.get("message") or reason or f"the server answered {code}")
    found = body.get("details")
    details = dict(found) if isinstance(found, Mapping) else {}
    if not isinstance(details.get("retryAfterSeconds", 0), int | float):
        del details["retryAfterSeconds"]
    return kind(message, details=details, status=code, reason=reason)


class CredentialsError(ValueError):
    """The kubeconfig or the pod's service account is invalid; the message names file and problem."""
