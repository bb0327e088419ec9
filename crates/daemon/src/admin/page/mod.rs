//! The status page: one document that loads nothing else, built from the files in this folder. It
//! reads `/status` and `/history`; nothing on it changes anything.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::header::{HeaderName, X_CONTENT_TYPE_OPTIONS};
use csa_provider::binlog::Uuid;

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 5] = [
    include_str!("format.js"),
    include_str!("chart.js"),
    include_str!("channel.js"),
    include_str!("overview.js"),
    include_str!("page.js"),
];

/// Returns the page's headers and body. Its policy admits only its own scripts and style, by a
/// nonce made for this answer.
pub(crate) fn page() -> ([(HeaderName, String); 5], String) {
    let nonce = Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    let body = HTML
        .replace("{{nonce}}", &nonce)
        .replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPTS.concat());
    (headers, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_asks_for_nothing_from_outside() {
        let (headers, body) = page();
        assert!(!body.contains("{{"), "a part is missing");
        for outside in ["http://", "https://", "@import", "url(", "<link rel=\"stylesheet", " src="]
        {
            // The name of the SVG vocabulary is never fetched.
            let body = body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains(outside), "{outside}");
        }
        let (_, policy) =
            headers.iter().find(|(name, _)| *name == CONTENT_SECURITY_POLICY).expect("one");
        let nonce = policy.split("nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        assert_eq!(body.matches(&format!("nonce=\"{}\"", nonce.expect("a nonce"))).count(), 2);
        assert_ne!(page().1, body, "a nonce is used once");
    }

    #[test]
    fn text_is_never_read_as_markup() {
        for script in SCRIPTS {
            for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!script.contains(sink), "{sink}");
            }
        }
    }
}
