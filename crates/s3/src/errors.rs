//! What the store answered, in words.

use object_store::Error as Refusal;
use stonefold_types::{Error, Kind};

/// A refusal as an error of the house. `what` names the action and its object.
pub(crate) fn error(what: impl Into<String>, refusal: &Refusal) -> Error {
    let what = format!("{}: {}", what.into(), plain(refusal));
    match refusal {
        Refusal::NotFound { .. } => Error::new(Kind::NotFound, what),
        Refusal::AlreadyExists { .. } => Error::new(Kind::AlreadyExists, what),
        Refusal::Precondition { .. } | Refusal::NotModified { .. } => Error::new(Kind::Conflict, what),
        Refusal::PermissionDenied { .. } | Refusal::Unauthenticated { .. } => {
            Error::new(Kind::Denied, what).remedy(
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the server, or name a file with the keys in the pool's URL: credentials=FILE",
            )
        }
        _ => Error::new(Kind::Io, what),
    }
}

/// Whether the same request may be answered otherwise in a moment.
pub(crate) fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Generic { .. })
}

/// The innermost cause; of an answer in XML what it says to people.
fn plain(refusal: &Refusal) -> String {
    let mut cause: &dyn std::error::Error = refusal;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim().to_owned())
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) if !message.is_empty() => format!("{message} ({code})"),
        (Some(code), _) => code,
        _ => text.trim().trim_end_matches(':').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Refusal {
        Refusal::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn xml_is_put_into_words() {
        let answer = "Server returned non-2xx status code: 500 Internal: <?xml?><Error><Code>SlowDown</Code><Message>Reduce it.</Message></Error>";
        assert_eq!(plain(&refusal(answer)), "Reduce it. (SlowDown)");
        assert_eq!(plain(&refusal("connection refused")), "connection refused");
        let error = error("object 'a' could not be put", &refusal("connection refused"));
        assert_eq!(error.to_string(), "object 'a' could not be put: connection refused");
        assert_eq!(error.kind(), Kind::Io);
    }
}
