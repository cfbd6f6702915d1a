//! How a namespace may be spelt.

use crate::catalogue::grain::BadGrain;

/// Kept for attestations, which are never authored.
const RESERVED: &str = "agent:attest";

/// Refuses a namespace that may not be authored in.
pub fn check(namespace: &str) -> Result<(), BadGrain> {
    if namespace == RESERVED {
        return Err(BadGrain::new("namespace", format!("{RESERVED:?} is reserved")));
    }
    check_spelling(namespace)
}

/// Refuses a namespace that looks like another one, or like a pattern.
pub fn check_spelling(namespace: &str) -> Result<(), BadGrain> {
    match namespace.chars().find(|c| is_refused(*c)) {
        None => Ok(()),
        Some(found) => {
            let code = u32::from(found);
            let rule = format!("has U+{code:04X}: no white space, control or invisible character, and no *");
            Err(BadGrain::new("namespace", rule))
        }
    }
}

fn is_refused(c: char) -> bool {
    c == '*' || c.is_whitespace() || c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{ad}' | '\u{feff}')
}
