use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::channel::Refusal;
use crate::observe::view::ErrorAnswer;

/// A refusal: one line, and what to do.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    answer: ErrorAnswer,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        error: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { status, answer: ErrorAnswer { error: error.into(), fix: fix.into() } }
    }

    pub(super) fn bad(error: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, fix)
    }

    pub(super) fn internal(error: impl std::fmt::Display) -> Self {
        let fix = "see the log of csa-daemon";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), fix)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.by_target {
            true => StatusCode::BAD_GATEWAY,
            false => StatusCode::CONFLICT,
        };
        Self::new(status, refusal.error, refusal.fix)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.answer)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
