//! How answers and errors look over HTTP.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::methods::Reply;
use crate::base::ids::RequestId;
use crate::wire::method::Body as BodyKind;
use crate::wire::{Answer, Blob, Code, Fault};

/// In a response's extensions: who signed in by it.
#[derive(Clone)]
pub struct SignedIn(pub String);

const REQUEST_ID: &str = "x-request-id";

/// Wraps a reply as its route says.
pub fn render(kind: BodyKind, reply: Reply, asked: &HeaderMap) -> Result<Response, Fault> {
    let answer = match reply {
        Reply::Http(response) => return Ok(response),
        Reply::Answer(answer) => answer,
    };
    match (kind, answer.blob) {
        (BodyKind::Bare, blob) => {
            let data = answer.data;
            Ok(json_body(
                &Answer {
                    data,
                    blob,
                    stream: None,
                }
                .into_inline(),
            ))
        }
        (BodyKind::Bytes, Some(blob)) if !wants_json(asked) => Ok(bytes(blob, asked)),
        (_, blob) => {
            let data = answer.data;
            let data = Answer {
                data,
                blob,
                stream: None,
            }
            .into_inline();
            Ok(json_body(&json!({"success": true, "data": data})))
        }
    }
}

/// An error in its envelope, with its code's status.
pub fn fault(fault: &Fault, request_id: &RequestId) -> Response {
    if fault.code == Code::Internal {
        tracing::error!(request_id = request_id.as_str(), error = %fault, "request failed");
    }
    let mut response = json_body(&json!({
        "success": false,
        "error": {
            "code": fault.code_text(),
            "message": fault.message,
            "requestId": request_id,
        }
    }));
    // A code of a newer workstation that this server does not know: the fault is on that side.
    let status = if fault.foreign.is_some() {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::from_u16(fault.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    match fault.code {
        Code::Unauthenticated => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Code::RateLimited => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        _ => {}
    }
    response
}

/// What every response carries. Nothing is cached, guessed or framed.
pub fn common_headers(headers: &mut HeaderMap, request_id: &RequestId) {
    let id = HeaderValue::from_str(request_id.as_str());
    headers.insert(
        REQUEST_ID,
        id.unwrap_or_else(|_| HeaderValue::from_static("unknown")),
    );
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers
            .entry(name)
            .or_insert_with(|| HeaderValue::from_static(value));
    }
}

fn json_body(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

fn wants_json(asked: &HeaderMap) -> bool {
    asked
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accept| accept.to_ascii_lowercase().contains("application/json"))
}

/// Bytes of a workstation: hostile content, so that a browser may show but never run it.
fn bytes(blob: Blob, asked: &HeaderMap) -> Response {
    let digest = ring::digest::digest(&ring::digest::SHA256, &blob.bytes);
    let etag = format!("\"{}\"", data_encoding::HEXLOWER.encode(digest.as_ref()));
    let known = asked
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == etag));
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        Response::new(Body::from(blob.bytes))
    };
    let headers = response.headers_mut();
    let octets = || HeaderValue::from_static("application/octet-stream");
    let kind = HeaderValue::from_str(&blob.content_type).unwrap_or_else(|_| octets());
    headers.insert(header::CONTENT_TYPE, kind);
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox; default-src 'none'"),
    );
    response
}
