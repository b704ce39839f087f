//! A text as sections, sentences and tables, each with its place.
//!
//! What is no claim is [blanked](super::blanks) first, so that every place stays what it was.

use super::blanks::{BREAK, CELL, ROW, without_what_is_no_claim};
use super::tokens::{Token, plain, tokens};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// A sentence, or a cell of a table.
#[derive(Debug)]
pub(super) struct Piece {
    pub tokens: Vec<Token>,
    pub at: Range<usize>,
    /// See [`plain`].
    pub plain: String,
}

#[derive(Debug)]
pub(super) enum Block {
    /// With its level, from 1.
    Heading(usize, Piece),
    /// Its sentences.
    Paragraph(Vec<Piece>),
    /// The first row is the head.
    Table(Vec<Vec<Piece>>),
}

/// All of it.
pub(super) struct Text {
    /// Each with the number of its section.
    pub blocks: Vec<(usize, Block)>,
    /// The section that each section is in.
    parents: Vec<Option<usize>>,
    whole: String,
    /// What was said around each section that was asked for.
    around: RefCell<HashMap<usize, Rc<str>>>,
}

impl Text {
    pub(super) fn new(source: &str) -> Self {
        let whole = without_what_is_no_claim(source);
        let mut text = Text { blocks: Vec::new(), parents: vec![None], whole, around: RefCell::default() };
        text.read();
        text
    }

    fn read(&mut self) {
        let whole = std::mem::take(&mut self.whole);
        let mut levels: Vec<(usize, usize)> = vec![(0, 0)];
        for block in blocks(&whole) {
            if let Block::Heading(level, _) = &block {
                while levels.len() > 1 && levels.last().is_some_and(|(above, _)| above >= level) {
                    levels.pop();
                }
                self.parents.push(levels.last().map(|(_, section)| *section));
                levels.push((*level, self.parents.len() - 1));
            }
            let section = levels.last().map_or(0, |(_, section)| *section);
            self.blocks.push((section, block));
        }
        self.whole = whole;
    }

    /// All that is said in a section, in those that it is in, and in those within it: as one plain text.
    pub(super) fn around(&self, section: usize) -> Rc<str> {
        if let Some(around) = self.around.borrow().get(&section) {
            return around.clone();
        }
        let within = |mut of: usize, inner: usize| -> bool {
            loop {
                match of {
                    of if of == inner => return true,
                    _ => match self.parents[of] {
                        Some(parent) => of = parent,
                        None => return false,
                    },
                }
            }
        };
        let blocks =
            self.blocks.iter().filter(|(other, _)| within(section, *other) || within(*other, section));
        let around: String =
            blocks.flat_map(|(_, block)| block.pieces()).map(|piece| piece.plain.as_str()).collect();
        let around: Rc<str> = around.into();
        self.around.borrow_mut().insert(section, around.clone());
        around
    }

    /// All of it, as one plain text.
    pub(super) fn all(&self) -> String {
        self.blocks.iter().flat_map(|(_, block)| block.pieces()).map(|piece| piece.plain.as_str()).collect()
    }

    /// Every paragraph, with its section and number.
    pub(super) fn paragraphs(&self) -> impl Iterator<Item = (usize, usize, &Vec<Piece>)> {
        self.blocks.iter().enumerate().filter_map(|(number, (section, block))| match block {
            Block::Paragraph(sentences) => Some((*section, number, sentences)),
            _ => None,
        })
    }

    /// Every table, with its section and number.
    pub(super) fn tables(&self) -> impl Iterator<Item = (usize, usize, &Vec<Vec<Piece>>)> {
        self.blocks.iter().enumerate().filter_map(|(number, (section, block))| match block {
            Block::Table(rows) => Some((*section, number, rows)),
            _ => None,
        })
    }
}

impl Block {
    pub(super) fn pieces(&self) -> Box<dyn Iterator<Item = &Piece> + '_> {
        match self {
            Block::Heading(_, piece) => Box::new(std::iter::once(piece)),
            Block::Paragraph(pieces) => Box::new(pieces.iter()),
            Block::Table(rows) => Box::new(rows.iter().flatten()),
        }
    }
}

fn piece(text: &str, at: Range<usize>) -> Piece {
    let tokens = tokens(text, at.clone());
    let inner = text[at.clone()].trim();
    let start = at.start + text[at].find(inner).unwrap_or(0);
    Piece { plain: plain(&tokens), tokens, at: start..start + inner.len() }
}

fn blocks(text: &str) -> Vec<Block> {
    let mut reader = Reader { text, blocks: Vec::new(), paragraph: None, table: Vec::new() };
    let mut start = 0;
    for line in text.split_inclusive(['\n', BREAK, ROW]) {
        reader.line(start..start + line.len());
        start += line.len();
    }
    reader.end();
    reader.blocks
}

struct Reader<'a> {
    text: &'a str,
    blocks: Vec<Block>,
    paragraph: Option<Range<usize>>,
    table: Vec<Vec<Piece>>,
}

impl Reader<'_> {
    fn line(&mut self, at: Range<usize>) {
        let line = &self.text[at.clone()];
        let bare = line.trim_matches(|c: char| c.is_whitespace() || c == BREAK);
        let hashes = bare.bytes().take_while(|byte| *byte == b'#').count();
        let cells = cells(self.text, at.clone());
        if bare.is_empty() {
            self.end_paragraph();
            // Within a table of HTML lines may be empty.
            if !line.contains(ROW) && !self.text[at.end..].trim_start().contains(ROW) {
                self.end_table();
            }
        } else if (1..=6).contains(&hashes) && bare[hashes..].starts_with(' ') {
            self.end();
            self.blocks.push(Block::Heading(hashes, piece(self.text, at)));
        } else if bare.chars().all(|c| "|-: ".contains(c)) {
            // The line below a head.
        } else if cells.len() > 1 {
            self.end_paragraph();
            self.table.push(cells.into_iter().map(|at| piece(self.text, at)).collect());
        } else {
            self.end_table();
            let begins = bare.starts_with(['-', '*', '+']) && bare[1..].starts_with(' ');
            if begins {
                self.end_paragraph();
            }
            let start = self.paragraph.as_ref().map_or(at.start, |open| open.start);
            self.paragraph = Some(start..at.end);
            if line.ends_with(BREAK) {
                self.end_paragraph();
            }
        }
    }

    fn end(&mut self) {
        self.end_paragraph();
        self.end_table();
    }

    fn end_paragraph(&mut self) {
        if let Some(at) = self.paragraph.take() {
            let sentences = sentences(self.text, at);
            if !sentences.is_empty() {
                self.blocks.push(Block::Paragraph(sentences));
            }
        }
    }

    fn end_table(&mut self) {
        let table = std::mem::take(&mut self.table);
        match table.len() {
            0 => {}
            // One row is a line of text with a bar, or with a gap in it.
            1 => self.blocks.push(Block::Paragraph(table.into_iter().flatten().collect())),
            _ => self.blocks.push(Block::Table(table)),
        }
    }
}

/// The cells of a line that is a row: between bars, between tags, or columns with two blanks or more between them.
fn cells(text: &str, at: Range<usize>) -> Vec<Range<usize>> {
    let line = text[at.clone()].trim_end_matches(['\n', ROW, BREAK]);
    let bare = line.trim();
    let split = |mark: char| {
        let mut cells = Vec::new();
        let mut start = at.start;
        for cell in line.split(mark) {
            cells.push(start..start + cell.len());
            start += cell.len() + mark.len_utf8();
        }
        cells
    };
    if line.contains(CELL) {
        let mut cells = split(CELL);
        cells.pop();
        return cells;
    }
    if bare.starts_with('|') && bare.len() > 1 {
        let mut cells = split('|');
        cells.remove(0);
        if bare.ends_with('|') {
            cells.pop();
        }
        return cells;
    }
    columns(line, at.start)
}

/// `A    12  IOPS`: three columns or more, or none.
fn columns(line: &str, start: usize) -> Vec<Range<usize>> {
    let mut cells: Vec<Range<usize>> = Vec::new();
    let mut from = 0;
    for part in line.split("  ") {
        if !part.trim().is_empty() {
            cells.push(start + from..start + from + part.len());
        }
        from += part.len() + 2;
    }
    if cells.len() >= 3 { cells } else { Vec::new() }
}

/// Sentences end at a mark with a blank and no small letter behind it.
fn sentences(text: &str, at: Range<usize>) -> Vec<Piece> {
    const SHORT: &[&str] = &["e.g", "i.e", "vs", "approx", "ca", "fig", "no", "etc"];
    let mut sentences = Vec::new();
    let mut start = at.start;
    for (place, mark) in text[at.clone()].char_indices().filter(|(_, c)| matches!(c, '.' | '!' | '?')) {
        let end = at.start + place + mark.len_utf8();
        let rest = &text[end..at.end];
        let goes_on = rest.trim_start_matches([')', '"', '*']).trim_start().chars().next();
        let ends = rest.is_empty() || rest.starts_with([' ', '\n', ')', '"', '*', BREAK]);
        let word = text[start..end - 1].rsplit([' ', '(', '\n']).next().unwrap_or_default().to_lowercase();
        if ends && !goes_on.is_some_and(char::is_lowercase) && !SHORT.contains(&word.as_str()) {
            sentences.push(start..end);
            start = end;
        }
    }
    sentences.push(start..at.end);
    sentences.into_iter().map(|at| piece(text, at)).filter(|piece| !piece.tokens.is_empty()).collect()
}
