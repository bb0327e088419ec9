//! The runbook as a document, for operators who have this daemon at hand and not its repository: the page
//! leads to its sections. It reads the Markdown that docs/runbook.md uses, and no more.

const RUNBOOK: &str = include_str!("../../../../../docs/runbook.md");
const HTML: &str = include_str!("runbook.html");

/// Returns the document without its nonce and its style.
pub(super) fn document() -> String {
    HTML.replace("{{runbook}}", &html(RUNBOOK))
}

fn html(markdown: &str) -> String {
    let mut text = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        let continues = |next: &&str| !next.is_empty() && !next.starts_with("- ");
        if line.starts_with("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            text +=
                &format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", escaped(&code.join("\n")));
        } else if let Some(title) = line.strip_prefix("# ") {
            text += &format!("<h1>{}</h1>\n", inline(title));
        } else if let Some(title) = line.strip_prefix("## ") {
            text += &format!("<h2 id=\"{}\">{}</h2>\n", anchor(title), inline(title));
        } else if let Some(first) = line.strip_prefix("- ") {
            let mut item = first.to_owned();
            while let Some(next) = lines.next_if(continues) {
                item += &format!("\n{}", next.trim_start());
            }
            let is_first = !text.ends_with("</li>\n");
            text +=
                &format!("{}<li>{}</li>\n", if is_first { "<ul>\n" } else { "" }, inline(&item));
            if lines.peek().is_none_or(|next| !next.starts_with("- ")) {
                text += "</ul>\n";
            }
        } else if !line.is_empty() {
            let mut paragraph = line.to_owned();
            while let Some(next) = lines.next_if(continues) {
                paragraph += &format!("\n{next}");
            }
            text += &format!("<p>{}</p>\n", inline(&paragraph));
        }
    }
    text
}

/// Returns the anchor that links in the documents use.
fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-")
}

fn inline(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[']) {
        let (before, from) = rest.split_at(at);
        made += &escaped(before);
        let (part, after) = span(from);
        made += &part;
        rest = after;
    }
    made + &escaped(rest)
}

/// Returns the marked text at the beginning, and the rest; a mark that marks nothing is a character.
fn span(text: &str) -> (String, &str) {
    for (mark, tag) in [("`", "code"), ("**", "strong"), ("*", "em")] {
        let inner = text.strip_prefix(mark).and_then(|text| text.split_once(mark));
        if let Some((inner, rest)) = inner {
            let inner = if tag == "code" { escaped(inner) } else { inline(inner) };
            return (format!("<{tag}>{inner}</{tag}>"), rest);
        }
    }
    let link = text.strip_prefix('[').and_then(|text| text.split_once("](")).and_then(
        |(label, target)| target.split_once(')').map(|(target, rest)| (label, target, rest)),
    );
    match link {
        Some((label, target, rest)) if target.starts_with('#') => {
            (format!("<a href=\"{}\">{}</a>", escaped(target), inline(label)), rest)
        }
        // The other documents are not served.
        Some((label, _, rest)) => (inline(label), rest),
        None => {
            let (mark, rest) = text.split_at(1);
            (escaped(mark), rest)
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html() {
        for (markdown, expected) in [
            ("# A *b*\n", "<h1>A <em>b</em></h1>\n"),
            ("## Look at it\n", "<h2 id=\"look-at-it\">Look at it</h2>\n"),
            (
                "a\n**b** `<&*>`\n\nc\n",
                "<p>a\n<strong>b</strong> <code>&lt;&amp;*&gt;</code></p>\n<p>c</p>\n",
            ),
            (
                "- **1**: a\n  b\n- c\n\nd",
                "<ul>\n<li><strong>1</strong>: a\nb</li>\n<li>c</li>\n</ul>\n<p>d</p>\n",
            ),
            (
                "[a](#b), [`c`](d.md#e), [x] 2 * 3",
                "<p><a href=\"#b\">a</a>, <code>c</code>, [x] 2 * 3</p>\n",
            ),
            ("```sh\na < *b*\n\n```\n", "<pre tabindex=\"0\"><code>a &lt; *b*\n</code></pre>\n"),
        ] {
            assert_eq!(html(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn the_runbook_is_read_as_a_whole() {
        let made = html(RUNBOOK);
        let code = made.split("<code>").skip(1).filter_map(|part| part.split_once("</code>"));
        let plain = code.fold(made.clone(), |text, (code, _)| {
            text.replace(&format!("<code>{code}</code>"), "")
        });
        for mark in ["`", "**", "](", "\n#", "\n- ", "\n|"] {
            assert!(!plain.contains(mark), "{mark} is left in {plain}");
        }
        for link in made.split("href=\"#").skip(1).filter_map(|part| part.split('"').next()) {
            assert!(made.contains(&format!("id=\"{link}\"")), "{link} leads nowhere");
        }
    }

    /// The page names sections; each exists.
    #[test]
    fn the_page_leads_to_sections_that_exist() {
        let script = include_str!("advice.js");
        let named: Vec<&str> =
            script.split("\"Csa").skip(1).filter_map(|part| part.split('"').next()).collect();
        assert!(named.len() > 3, "{named:?}");
        for name in named {
            assert!(RUNBOOK.contains(&format!("\n## Csa{name}\n")), "Csa{name}");
        }
    }
}
