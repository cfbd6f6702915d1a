//! What a program prints because it was asked for it.

use std::io::{self, Write as _};

/// Writes a text to the standard output, at once. A reader that has had enough (`| head`) is no error.
///
/// # Errors
/// The output takes no more, such as a full disk; the text says what it was about.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => {
            Err(io::Error::new(cause.kind(), format!("cannot write to the standard output: {cause}")))
        }
        _ => Ok(()),
    }
}
