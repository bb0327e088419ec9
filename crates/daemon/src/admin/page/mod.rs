//! The status page: one document that loads nothing else, built from the files in this folder. It
//! reads `/status`, `/history` and incidents; nothing on it changes anything. The runbook is another document.

mod runbook;

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use axum::http::header::{HeaderName, X_CONTENT_TYPE_OPTIONS};
use csa_provider::binlog::Uuid;

const HTML: &str = include_str!("page.html");
const STYLES: [&str; 3] =
    [include_str!("page.css"), include_str!("overview.css"), include_str!("channel.css")];
const SCRIPTS: [&str; 14] = [
    include_str!("format.js"),
    include_str!("words.js"),
    include_str!("advice.js"),
    include_str!("chart.js"),
    include_str!("sparkline.js"),
    include_str!("workers.js"),
    include_str!("pipe.js"),
    include_str!("copying.js"),
    include_str!("verifying.js"),
    include_str!("archiving.js"),
    include_str!("incidents.js"),
    include_str!("channel.js"),
    include_str!("overview.js"),
    include_str!("page.js"),
];

type Document = ([(HeaderName, String); 5], String);

/// Returns the page's headers and body.
pub(crate) fn page() -> Document {
    document(&HTML.replace("{{script}}", &SCRIPTS.concat()))
}

/// Returns the runbook's headers and body.
pub(crate) fn runbook() -> Document {
    document(&runbook::document())
}

/// Its policy admits only its own scripts and style, by a nonce made for this answer.
fn document(html: &str) -> Document {
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
    let body = html.replace("{{nonce}}", &nonce).replace("{{style}}", &STYLES.concat());
    (headers, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonces((headers, body): &Document) -> usize {
        let (_, policy) =
            headers.iter().find(|(name, _)| *name == CONTENT_SECURITY_POLICY).expect("one");
        let nonce = policy.split("nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        body.matches(&format!("nonce=\"{}\"", nonce.expect("a nonce"))).count()
    }

    #[test]
    fn the_page_is_whole_and_asks_for_nothing_from_outside() {
        let made = page();
        assert_eq!((nonces(&made), nonces(&runbook())), (2, 1));
        assert_ne!(page().1, made.1, "a nonce is used once");
        for (_, body) in [made, runbook()] {
            assert!(!body.contains("{{"), "a part is missing");
        }
        let (_, body) = page();
        for outside in ["http://", "https://", "@import", "url(", "<link rel=\"stylesheet", " src="]
        {
            // The name of the SVG vocabulary is never fetched.
            let body = body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains(outside), "{outside}");
        }
    }

    /// The policy refuses attributes with style or script in them.
    #[test]
    fn nothing_is_styled_or_scripted_by_attributes() {
        for text in SCRIPTS.into_iter().chain([HTML]) {
            for attribute in [" style=", "style:", "\"style\"", "onclick=", "setAttribute(\"on"] {
                assert!(!text.contains(attribute), "{attribute}");
            }
        }
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
