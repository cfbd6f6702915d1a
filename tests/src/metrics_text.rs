//! The Prometheus text format, read as strictly as its specification allows: whatever a scraper may trip over is an error.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};

/// One family of samples.
#[derive(Debug, Default)]
pub struct Family {
    /// `counter`, `gauge`, `histogram`, `summary`; empty while it is not said.
    pub kind: String,
    /// Whether it has a help text.
    pub helped: bool,
    /// Samples: name, labels, value.
    pub samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Reads a whole exposition; families by name.
///
/// # Errors
/// The line that is not as it must be.
pub fn read(text: &str) -> Result<BTreeMap<String, Family>> {
    ensure!(text.is_empty() || text.ends_with('\n'), "the last line has no end");
    let (mut families, mut seen, mut closed) = (BTreeMap::<String, Family>::new(), BTreeSet::new(), BTreeSet::new());
    let mut current = String::new();
    for (number, line) in text.lines().enumerate() {
        let at = || format!("line {}: {line:?}", number + 1);
        if line.trim().is_empty() {
            continue;
        }
        let family = match line.strip_prefix("# ") {
            Some(comment) => told(comment, &mut families).with_context(at)?,
            None => Some(sampled(line, &mut families, &mut seen).with_context(at)?),
        };
        let Some(family) = family else { continue };
        if family != current {
            ensure!(!closed.contains(&family), "{}: the family {family} is in two places", at());
            closed.insert(std::mem::replace(&mut current, family));
        }
    }
    for (name, family) in &families {
        ensure!(!family.kind.is_empty(), "{name} has no TYPE");
        ensure!(!family.samples.is_empty(), "{name} has no sample");
        if family.kind == "histogram" {
            histogram(name, family)?;
        }
    }
    Ok(families)
}

/// A `TYPE` or `HELP` line; the family it is about.
fn told(comment: &str, families: &mut BTreeMap<String, Family>) -> Result<Option<String>> {
    let mut words = comment.splitn(3, ' ');
    let (word, name, rest) = (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next());
    match word {
        "TYPE" => {
            named(name)?;
            let kind = rest.context("no type")?;
            ensure!(
                ["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind),
                "no type is called {kind}"
            );
            let family = families.entry(name.to_owned()).or_default();
            ensure!(family.kind.is_empty() && family.samples.is_empty(), "a second TYPE, or one behind its samples");
            family.kind = kind.to_owned();
        }
        "HELP" => {
            named(name)?;
            ensure!(!rest.unwrap_or_default().is_empty(), "an empty help text");
            let family = families.entry(name.to_owned()).or_default();
            ensure!(!family.helped, "a second HELP");
            family.helped = true;
        }
        _ => return Ok(None),
    }
    Ok(Some(name.to_owned()))
}

fn named(name: &str) -> Result<()> {
    let good = |(place, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || b"_:".contains(&byte) || (place > 0 && byte.is_ascii_digit())
    };
    ensure!(!name.is_empty() && name.bytes().enumerate().all(good), "{name:?} is no name");
    Ok(())
}

/// A sample; the family that it is of.
fn sampled(line: &str, families: &mut BTreeMap<String, Family>, seen: &mut BTreeSet<String>) -> Result<String> {
    let end = line.find(['{', ' ']).context("no value")?;
    let (name, rest) = line.split_at(end);
    named(name)?;
    let (labels, rest) = if rest.starts_with('{') { labelled(rest)? } else { (BTreeMap::new(), rest) };
    let value = rest.strip_prefix(' ').context("no space before the value")?;
    ensure!(!value.contains(' '), "more than a value");
    let value: f64 = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().context("the value is no number")?,
    };
    ensure!(seen.insert(format!("{name} {labels:?}")), "the same sample twice");
    let of = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
    let of = of.into_iter().find(|base| {
        families.get(*base).is_some_and(|family| ["histogram", "summary"].contains(&family.kind.as_str()))
    });
    let family = of.unwrap_or(name).to_owned();
    let known = families.get_mut(&family).context("a sample without a TYPE before it")?;
    if known.kind == "counter" {
        ensure!(value >= 0.0 && value.is_finite(), "a counter is {value}");
    }
    known.samples.push((name.to_owned(), labels, value));
    Ok(family)
}

/// Labels in braces, and what follows.
fn labelled(text: &str) -> Result<(BTreeMap<String, String>, &str)> {
    let (mut labels, mut rest) = (BTreeMap::new(), &text[1..]);
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (name, after) = rest.split_once("=\"").context("a label without a value")?;
        named(name)?;
        ensure!(!name.contains(':'), "a label's name has a colon");
        let (mut value, mut characters) = (String::new(), after.char_indices());
        let end = loop {
            match characters.next().context("a label's value has no end")? {
                (at, '"') => break at,
                (_, '\\') => match characters.next().context("a label's value has no end")?.1 {
                    'n' => value.push('\n'),
                    escaped @ ('\\' | '"') => value.push(escaped),
                    other => bail!("\\{other} is no escape"),
                },
                (_, character) => value.push(character),
            }
        };
        ensure!(labels.insert(name.to_owned(), value).is_none(), "the label {name} twice");
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => ensure!(rest.starts_with('}'), "labels without an end"),
        }
    }
}

/// Buckets grow, the last one is +Inf, and it is the count.
fn histogram(name: &str, family: &Family) -> Result<()> {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for (sample, labels, value) in &family.samples {
        let mut others = labels.clone();
        let bound = others.remove("le");
        let key = format!("{others:?}");
        if sample.ends_with("_bucket") {
            let bound = bound.with_context(|| format!("{name}: a bucket without le"))?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().context("le is no number")? };
            series.entry(key).or_default().push((bound, *value));
        } else if sample.ends_with("_count") {
            counts.insert(key, *value);
        }
    }
    for (key, buckets) in series {
        let grows = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let last = buckets.last().copied().unwrap_or_default();
        ensure!(grows && last.0 == f64::INFINITY, "{name} {key}: the buckets do not grow to +Inf");
        ensure!(counts.get(&key) == Some(&last.1), "{name} {key}: the last bucket is not the count");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_a_scraper_trips_over_is_an_error() {
        let good = "# HELP a_total How many.\n# TYPE a_total counter\na_total{x=\"1\\n\\\"\"} 2\na_total{x=\"2\"} 3\n";
        assert_eq!(read(good).unwrap()["a_total"].samples.len(), 2);
        for bad in [
            "a_total 1\n",
            "# TYPE a counter\n",
            "# TYPE a counter\na 1",
            "# TYPE a counter\na -1\n",
            "# TYPE a counter\na 1\na 1\n",
            "# TYPE a counter\na x\n",
            "# TYPE a counter\na{b=1} 1\n",
            "# TYPE a counter\na{b=\"1\" 1\n",
            "# TYPE a counter\n# TYPE b counter\nb 1\na 1\nb{x=\"1\"} 1\n",
            "# TYPE a-b counter\na-b 1\n",
            "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
            "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
