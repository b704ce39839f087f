//! A text without what is no claim: tags, scripts and comments of HTML, code and the targets of links of Markdown.
//!
//! Blanks stand in place of each of their bytes, so that all else keeps its place.

/// Ends a paragraph, where a tag did.
pub(super) const BREAK: char = '\u{1D}';
/// Ends a row of a table, where a tag did.
pub(super) const ROW: char = '\u{1E}';
/// Ends a cell, where a tag did.
pub(super) const CELL: char = '\u{1F}';

/// Of HTML or Markdown, by its beginning.
pub(super) fn without_what_is_no_claim(source: &str) -> String {
    if is_html(source) { without_tags(source) } else { without_code(source) }
}

fn is_html(source: &str) -> bool {
    let beginning: String = source.chars().take(2000).collect::<String>().to_lowercase();
    ["<!doctype html", "<html", "<body", "<table", "<p>", "<h1"].iter().any(|tag| beginning.contains(tag))
}

/// As many bytes, all blanks but for ends of lines.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// `with` and blanks, as long as `text`.
fn in_place(text: &str, with: char) -> String {
    let mut buffer = [0; 4];
    let with = with.encode_utf8(&mut buffer);
    match text.len() >= with.len() && !text.contains('\n') {
        true => format!("{with}{}", " ".repeat(text.len() - with.len())),
        false => blank(text),
    }
}

fn without_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(['<', '&']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let lower = rest.get(..8.min(rest.len())).unwrap_or("").to_lowercase();
        let end = match () {
            () if rest.starts_with('&') => {
                let end = rest.find(';').filter(|end| *end <= 8).map_or(1, |end| end + 1);
                text.push_str(&in_place(&rest[..end], entity(&rest[..end])));
                rest = &rest[end..];
                continue;
            }
            () if rest.starts_with("<!--") => rest.find("-->").map_or(rest.len(), |end| end + 3),
            () if lower.starts_with("<script") => ending(rest, "</script>"),
            () if lower.starts_with("<style") => ending(rest, "</style>"),
            () => rest.find('>').map_or(rest.len(), |end| end + 1),
        };
        let tag = &rest[..end];
        let name: String =
            tag.trim_start_matches(['<', '/']).chars().take_while(char::is_ascii_alphanumeric).collect();
        text.push_str(&match (name.to_lowercase().as_str(), tag.starts_with("</")) {
            ("td" | "th", true) => in_place(tag, CELL),
            ("tr", true) => in_place(tag, ROW),
            (
                "p" | "li" | "div" | "br" | "h1" | "h2" | "h3" | "h4" | "table" | "section" | "ul"
                | "caption" | "title",
                _,
            ) => in_place(tag, BREAK),
            _ => blank(tag),
        });
        rest = &rest[end..];
    }
    text.push_str(rest);
    text
}

fn ending(text: &str, tag: &str) -> usize {
    text.to_ascii_lowercase().find(tag).map_or(text.len(), |end| end + tag.len())
}

fn entity(text: &str) -> char {
    match text {
        "&times;" => '×',
        "&micro;" => 'µ',
        "&plusmn;" => '±',
        "&ndash;" => '–',
        "&euro;" => '€',
        _ => ' ',
    }
}

fn without_code(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut fenced = false;
    for line in source.split_inclusive('\n') {
        let mark = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        if mark || fenced {
            fenced ^= mark;
            text.push_str(&blank(line));
        } else {
            text.push_str(&without_spans(line));
        }
    }
    text
}

/// Without inline code, and without what links point to.
fn without_spans(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['`', ']']) {
        let (open, close) = if rest[at..].starts_with('`') { ("`", '`') } else { ("](", ')') };
        let end = match rest[at..].starts_with(open) {
            true => rest[at + open.len()..].find(close).map(|end| at + open.len() + end + 1),
            false => None,
        };
        text.push_str(&rest[..at]);
        let end = end.unwrap_or(at + 1);
        // A bracket that opens stays a mark; it says nothing.
        text.push_str(&blank(&rest[at..end]));
        rest = &rest[end..];
    }
    text.push_str(rest);
    text
}
