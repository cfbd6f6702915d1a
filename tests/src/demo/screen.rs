//! What the demo prints: aligned, with little colour, and that only on a terminal.

#![expect(clippy::print_stdout, reason = "the demo is a command line program")]

use std::io::{IsTerminal as _, Write as _};

/// Width of the first column.
const LABEL: usize = 12;
/// Longest line of prose.
const WIDTH: usize = 96;

/// Where the demo prints.
pub struct Screen {
    colour: bool,
    terminal: bool,
}

impl Screen {
    /// Colours are off without a terminal, with `NO_COLOR` set, and on dumb terminals.
    pub fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { colour: terminal && !asked_not_to && !dumb, terminal }
    }

    /// The first line.
    pub fn title(&self, name: &str, what: &str) {
        println!("\n{}  {what}\n", self.bold(name));
    }

    /// Begins a part.
    pub fn part(&self, number: u32, title: &str) {
        println!("\n{}  {}\n", self.bold(&number.to_string()), self.bold(title));
    }

    /// A paragraph.
    pub fn prose(&self, text: &str) {
        for line in wrapped(text, WIDTH) {
            println!("   {line}");
        }
        println!();
    }

    /// A label and what belongs to it; what does not fit goes below, in the same column.
    pub fn line(&self, label: &str, text: &str) {
        let mut label = format!("{label:LABEL$}");
        for line in wrapped(text, WIDTH - LABEL) {
            println!("   {}{line}", self.dim(&label));
            label = " ".repeat(LABEL);
        }
    }

    /// A label, and text in columns that must stay as it is.
    pub fn raw(&self, label: &str, text: &str) {
        println!("   {}{text}", self.dim(&format!("{label:LABEL$}")));
    }

    /// Something that was checked and is as it should be.
    pub fn good(&self, label: &str, text: &str) {
        println!("   {}{} {text}", self.dim(&format!("{label:LABEL$}")), self.green("✓"));
    }

    /// Commands to repeat what was just seen.
    pub fn commands(&self, commands: &[String]) {
        println!();
        for command in commands {
            println!("   {} {}", self.dim("$"), self.cyan(command));
        }
    }

    /// An aside.
    pub fn note(&self, text: &str) {
        println!("   {}", self.dim(text));
    }

    /// An empty line.
    pub fn blank(&self) {
        println!();
    }

    /// A line that replaces itself on a terminal; elsewhere it is printed when `worth_a_line`.
    pub fn progress(&self, text: &str, worth_a_line: bool) {
        if self.terminal {
            print!("\r\x1b[K   {}", self.dim(text));
            let _shown_later = std::io::stdout().flush();
        } else if worth_a_line {
            println!("   {text}");
        }
    }

    /// Ends a line that replaces itself.
    pub fn end_progress(&self) {
        if self.terminal {
            print!("\r\x1b[K");
            let _shown_later = std::io::stdout().flush();
        }
    }

    /// Emphasis.
    pub fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    /// Good news.
    pub fn green(&self, text: &str) -> String {
        self.styled("32", text)
    }

    /// A refusal.
    pub fn red(&self, text: &str) -> String {
        self.styled("31", text)
    }

    fn cyan(&self, text: &str) -> String {
        self.styled("36", text)
    }

    fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Breaks a text at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("it begins with one line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}
