//! Cutting and pasting in a text at the places of its parsed nodes.

use roxmltree::Node;
use std::collections::BTreeMap;
use std::ops::Range;

/// Changes of a text, made all at once: places are those of the text as it was.
pub(super) struct Edits<'t> {
    text: &'t str,
    changes: Vec<(Range<usize>, String)>,
    /// Of elements without content, by where their tag ends: their name, and what becomes their content.
    opened: BTreeMap<usize, (&'t str, String)>,
}

impl<'t> Edits<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Edits { text, changes: Vec::new(), opened: BTreeMap::new() }
    }

    /// Puts something in the place of what lies there.
    pub(super) fn replace(&mut self, range: Range<usize>, with: String) {
        self.changes.push((range, with));
    }

    /// Makes something a child of an element: the first, but for what was made one before.
    pub(super) fn insert_into(&mut self, node: Node<'_, '_>, what: String) {
        let range = node.range();
        let tag = &self.text[range.clone()];
        let end = range.start + end_of_tag(tag);
        if self.text[..end].ends_with("/>") {
            self.opened.entry(end).or_insert((qualified(tag), String::new())).1.push_str(&what);
        } else {
            self.replace(end..end, what);
        }
    }

    /// Gives an element's attribute a value that needs no escaping.
    pub(super) fn set_attribute(&mut self, node: Node<'_, '_>, name: &str, value: &str) {
        match node.attribute_node(name) {
            Some(attribute) => self.replace(attribute.range_value(), value.to_owned()),
            None => {
                let start = node.range().start;
                let after = start + 1 + qualified(&self.text[start..]).len();
                self.replace(after..after, format!(" {name}='{value}'"));
            }
        }
    }

    /// Takes an attribute away.
    pub(super) fn drop_attribute(&mut self, node: Node<'_, '_>, name: &str) {
        if let Some(attribute) = node.attribute_node(name) {
            self.replace(attribute.range(), String::new());
        }
    }

    /// The text with all of it. Of changes within one that takes everything away nothing is left.
    pub(super) fn apply(mut self) -> String {
        for (end, (name, content)) in std::mem::take(&mut self.opened) {
            self.replace(end - 2..end, format!(">{content}</{name}>"));
        }
        // Insertions at a place come before what is replaced there.
        self.changes.sort_by_key(|(range, _)| (range.start, range.end));
        let (mut text, mut at) = (String::with_capacity(self.text.len() + 1024), 0);
        for (range, with) in self.changes {
            if range.start < at {
                continue;
            }
            text.push_str(&self.text[at..range.start]);
            text.push_str(&with);
            at = range.end;
        }
        text.push_str(&self.text[at..]);
        text
    }
}

/// The length of a tag with its brackets; a bracket within quotes ends none.
fn end_of_tag(text: &str) -> usize {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '>') => return at + 1,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if letter == open => quote = None,
            _ => {}
        }
    }
    text.len()
}

/// The name in a tag, with its prefix.
fn qualified(tag: &str) -> &str {
    let name = &tag[1..];
    let end =
        name.find(|letter: char| letter.is_whitespace() || matches!(letter, '/' | '>')).unwrap_or(name.len());
    &name[..end]
}
