//! The words that rules are made of: networks, methods, names, places of values, rates. Each refusal says what to write.

use std::{num::NonZeroU32, time::Duration};

use ipnet::IpNet;

use crate::{
    method::Method,
    origin::{Pattern, Scheme},
    policy::{Per, Rate, Source},
    refusal::quote,
    target::Target,
};

/// Longest tool name, principal or other plain text, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Most words of a command.
const ARGUMENTS_MAX: usize = 32;
/// Bounds of `refresh`.
const REFRESH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

/// A host pattern.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|cause| cause.to_string())
}

/// A network in its normal form.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text.parse().map_err(|_| format!("{} is no network: write 10.0.0.0/8", quote(text)))?;
    if network == network.trunc() {
        Ok(network)
    } else {
        Err(format!("{network} has host bits: write {}", network.trunc()))
    }
}

/// A method's word.
pub fn method(text: &str) -> Result<Method, String> {
    Method::parse(text)
        .ok_or_else(|| format!("{} is no method: write GET, HEAD, POST, PUT, PATCH or DELETE", quote(text)))
}

/// A tool's name.
pub fn tool(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!("{} is no tool's name", quote(text)));
    }
    Ok(())
}

/// Address of a definition.
pub fn definition(text: &str) -> Result<String, String> {
    let digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    digits
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{} is no address of a definition: write 64 lower-case hex digits", quote(text)))
}

/// A principal.
pub fn owner(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!("{} is no principal: write one such as user:runner", quote(text)));
    }
    Ok(text.to_owned())
}

/// A user name of basic authentication.
pub fn user(text: &str) -> Result<String, String> {
    if text.contains(':') {
        return Err("has a `:`, which basic authentication cannot carry in a user name".to_owned());
    }
    plain(text)
}

/// The name of a query parameter.
pub fn parameter(text: &str) -> Result<String, String> {
    let sound = (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    sound.then(|| text.to_owned()).ok_or_else(|| "no parameter's name: write one such as api_key".to_owned())
}

/// A text that is neither empty nor long and has no control characters.
pub fn plain(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!("is empty, over {NAME_BYTES_MAX} bytes or has control characters"));
    }
    Ok(text.to_owned())
}

/// One OAuth scope.
pub fn scope(text: &str) -> Result<String, String> {
    let sound = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
    match plain(text) {
        Ok(text) if sound => Ok(text),
        _ => Err(format!("{} is no scope: write each as an entry of its own, without blanks", quote(text))),
    }
}

/// A region or a service.
pub fn place(text: &str) -> Result<String, String> {
    label(text).map_err(|rule| format!("{} {rule}", quote(text)))
}

/// A part of a signature's scope: a key's id, which is not repeated, since the key itself may stand there.
pub fn label(text: &str) -> Result<String, String> {
    let sound =
        (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    sound.then(|| text.to_owned()).ok_or_else(|| "may have letters, digits, `-`, `_` and `.` only".to_owned())
}

/// A token endpoint.
pub fn token_url(text: &str) -> Result<Target, String> {
    let target = address(text)?;
    match target.origin().scheme {
        Scheme::Https => Ok(target),
        Scheme::Http => {
            Err(format!("{} is plain http: a token endpoint is told secrets, write https://", target.origin()))
        }
    }
}

/// A Vault server's address: https, or http on this host, where an agent may listen.
pub fn vault_address(text: &str) -> Result<Target, String> {
    let target = address(text)?;
    let here = matches!(target.origin().host, crate::origin::Host::Address(address) if address.is_loopback());
    if target.origin().scheme == Scheme::Http && !here {
        return Err(format!(
            "{} is plain http to another host: write https://, or the loopback address of an agent",
            target.origin()
        ));
    }
    if target.path() != "/" {
        return Err(format!("{} has a path behind it: write scheme://host[:port] alone", target.origin()));
    }
    Ok(target)
}

fn address(text: &str) -> Result<Target, String> {
    let target = Target::parse(text).map_err(|refusal| refusal.text)?;
    match target.url().query() {
        None => Ok(target),
        Some(_) => Err(format!("{} has a query behind it: leave it out", target.origin())),
    }
}

/// Whether a text can name an environment variable.
pub fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The place of a value. The text is not repeated: somebody may have put the value itself there.
pub fn source(text: &str) -> Result<Source, String> {
    match text.split_once(':') {
        Some(("env", name)) if is_variable(name) => Ok(Source::Env(name.to_owned())),
        Some(("file", path)) if path.starts_with('/') => Ok(Source::File(path.into())),
        Some(("vault", rest)) => vault(rest),
        Some(("cmd", rest)) => command(rest),
        _ => Err("the place of the value, never the value: write \"env:VARIABLE\", \"file:/absolute/path\", \
                  \"vault:mount/data/path#field\" or \"cmd:/absolute/program arguments\""
            .to_owned()),
    }
}

/// A place that can be read without asking anybody.
pub fn near_source(text: &str) -> Result<Source, String> {
    match source(text)? {
        near @ (Source::Env(_) | Source::File(_)) => Ok(near),
        Source::Vault { .. } | Source::Command(_) => Err("has to be env: or file: here".to_owned()),
    }
}

fn vault(rest: &str) -> Result<Source, String> {
    let form = || {
        "not a field of Vault's KV store, version 2: write \"vault:<mount>/data/<path>#<field>\", as its API has it"
            .to_owned()
    };
    let (path, field) = rest.split_once('#').ok_or_else(form)?;
    let segments: Vec<_> = path.split('/').collect();
    let word = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let sound = segments.iter().all(word) && !segments.iter().any(|segment| matches!(*segment, "." | ".."));
    if !sound || segments.len() < 3 || !segments[1..segments.len() - 1].contains(&"data") || !word(&field) {
        return Err(form());
    }
    Ok(Source::Vault { path: path.to_owned(), field: field.to_owned() })
}

fn command(rest: &str) -> Result<Source, String> {
    if rest.chars().any(|c| c.is_control() || matches!(c, '\'' | '"' | '`' | '$' | '\\' | '|' | '>' | '<' | ';' | '&'))
    {
        return Err(
            "the command has quotes or a shell's signs: it is started without a shell, its words are split at \
                    blanks; put the rest into a program"
                .to_owned(),
        );
    }
    let arguments: Vec<_> = rest.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    match arguments.first() {
        Some(program) if program.starts_with('/') && arguments.len() <= ARGUMENTS_MAX => Ok(Source::Command(arguments)),
        _ => Err(format!("the command begins with no absolute path, or has over {ARGUMENTS_MAX} words")),
    }
}

/// A rate: `10/s`, `600/m`, `1000/h`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let form = || format!("{} is no rate: write calls and a time, such as 10/s, 600/m or 1000/h", quote(text));
    let (calls, per) = text.split_once('/').ok_or_else(form)?;
    let per = match per {
        "s" => Per::Second,
        "m" => Per::Minute,
        "h" => Per::Hour,
        _ => return Err(form()),
    };
    let digits = calls.bytes().all(|byte| byte.is_ascii_digit());
    let calls = calls.parse::<NonZeroU32>().ok().filter(|_| digits).ok_or_else(form)?;
    Ok(Rate { calls, per })
}

/// How long a value is used.
pub fn refresh(text: &str) -> Result<Duration, String> {
    let form = || format!("{} is no time between 1s and 24h: write one such as 5m", quote(text));
    let time = humantime::parse_duration(text).map_err(|_| form())?;
    (REFRESH.0..=REFRESH.1).contains(&time).then_some(time).ok_or_else(form)
}
