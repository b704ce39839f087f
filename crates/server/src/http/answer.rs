//! What handlers take and give: names and bodies on the way in, errors in the API's form on the way out.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use stonefold_api::{ErrorBody, ErrorKind};
use stonefold_types::{Error, ExportName, Kind, Name, PointName, SnapshotName};

/// What a handler returns.
pub(super) type Answer<T> = std::result::Result<T, Failure>;

/// An error on its way out.
#[derive(Debug)]
pub(super) struct Failure(pub(super) Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = ErrorBody::from(&self.0);
        if matches!(body.kind, ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::NoSpace) {
            tracing::warn!(kind = ?body.kind, "{}", self.0);
        }
        let status = StatusCode::from_u16(body.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let asks_for_a_token = body.kind == ErrorKind::NoToken;
        let mut response = (status, axum::Json(body)).into_response();
        if asks_for_a_token {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The `{disk}` of a path.
pub(super) struct DiskPath(pub(super) Name);

impl DiskPath {
    pub(super) fn export(&self) -> ExportName {
        ExportName::Disk(self.0.clone())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for DiskPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Path(disk) = Path::<String>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(DiskPath(Name::new(&disk)?))
    }
}

/// The `{disk}` and `{snapshot}` of a path.
pub(super) struct SnapshotPath(pub(super) SnapshotName);

impl SnapshotPath {
    pub(super) fn export(&self) -> ExportName {
        ExportName::Snapshot(self.0.clone())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SnapshotPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Path((disk, snapshot)) =
            Path::<(String, String)>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(SnapshotPath(SnapshotName { disk: Name::new(&disk)?, snapshot: Name::new(&snapshot)? }))
    }
}

/// The `{source}` and `{stamp}` of a path.
pub(super) struct PointPath(pub(super) PointName);

impl<S: Send + Sync> FromRequestParts<S> for PointPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let Path((source, stamp)) =
            Path::<(String, String)>::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(PointPath(PointName { source: Name::new(&source)?, stamp: Name::new(&stamp)? }))
    }
}

/// Paths with one name.
macro_rules! one_name {
    ($($(#[$doc:meta])* $path:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $path(pub(super) Name);

        impl<S: Send + Sync> FromRequestParts<S> for $path {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
                let Path(name) = Path::<String>::from_request_parts(parts, state).await.map_err(wrong)?;
                Ok($path(Name::new(&name)?))
            }
        }
    )*};
}

one_name! {
    /// The `{token}` of a path.
    TokenPath;
    /// The `{class}` of a path.
    ClassPath;
    /// The `{domain}` of a path.
    DomainPath;
    /// The `{machine}` of a path.
    MachinePath;
    /// The `{source}` of a path.
    SourcePath;
    /// The `{policy}` of a path.
    PolicyPath;
    /// The `{recovery}` of a path.
    RecoveryPath;
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Answer<Self> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(body)) => Ok(Body(body)),
            Err(JsonRejection::JsonDataError(e)) => Err(wrong(std::error::Error::source(&e).unwrap_or(&e))),
            Err(JsonRejection::JsonSyntaxError(e)) => Err(wrong(std::error::Error::source(&e).unwrap_or(&e))),
            Err(other) => Err(wrong(other)),
        }
    }
}

/// The part of a URL behind the question mark.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: for<'de> Deserialize<'de>> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Self> {
        let taken = Query::<T>::from_request_parts(parts, state).await;
        taken.map(|Query(asked)| Asked(asked)).map_err(|e: QueryRejection| wrong(e))
    }
}

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure(
        Error::new(Kind::Invalid, format!("the request cannot be read: {why}"))
            .remedy(format!("compare it with {}", stonefold_api::paths::OPENAPI)),
    )
}
