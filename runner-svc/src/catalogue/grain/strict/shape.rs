//! Which fields a grain of each type has, and of what type each is.

use super::super::{BadGrain, GrainType, Item, names};

/// A payload whose fields are looked up by their short names.
pub struct Fields<'a>(pub &'a [(String, Item)]);

impl<'a> Fields<'a> {
    /// A field.
    pub fn get(&self, key: &str) -> Option<&'a Item> {
        let at = self.0.binary_search_by(|(name, _)| name.as_str().cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// A field, if it is text.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        if let Some(Item::Text(text)) = self.get(key) { Some(text) } else { None }
    }

    fn need(&self, key: &str, what: &str, fits: fn(&Item) -> bool) -> Result<(), BadGrain> {
        if self.get(key).is_some_and(fits) { Ok(()) } else { Err(wrong(key, what)) }
    }

    fn may_be(&self, keys: &[&str], what: &str, fits: fn(&Item) -> bool) -> Result<(), BadGrain> {
        match keys.iter().find(|key| self.get(key).is_some_and(|item| !fits(item))) {
            Some(key) => Err(wrong(key, what)),
            None => Ok(()),
        }
    }
}

/// The fields of every type, then those of this one.
pub fn check(kind: GrainType, fields: &Fields<'_>) -> Result<(), BadGrain> {
    if fields.text("t") != Some(kind.name()) {
        return Err(BadGrain::new("type", format!("must be {:?}, as the header says", kind.name())));
    }
    fields.need("c", "a float", |item| matches!(item, Item::Float(_)))?;
    created_at_ms(fields)?;
    fields.may_be(&["ns", "adid", "user", "st", "et", "df"], "text", is_text)?;
    fields.may_be(&["tags"], "a list of texts that is not empty", |item| list_of(item, 1, is_text))?;
    if let Some(run_id) = fields.get("run_id") {
        let text = if let Item::Text(text) = run_id { text.as_str() } else { "" };
        if text.trim().is_empty() || text.len() > 128 {
            return Err(wrong("run_id", "text of 1 to 128 bytes"));
        }
    }
    match kind {
        GrainType::Tool => tool(fields),
        GrainType::Workflow => workflow(fields),
        GrainType::Fact => ["s", "r", "o"].into_iter().try_for_each(|key| fields.need(key, "text", is_text)),
        GrainType::State => fields.need("ctx", "present", |_| true),
        GrainType::Observation => ["oid", "otype"].into_iter().try_for_each(|key| fields.need(key, "text", is_text)),
        GrainType::Event
        | GrainType::Goal
        | GrainType::Reasoning
        | GrainType::Consensus
        | GrainType::Consent
        | GrainType::Skill
        | GrainType::Recommendation
        | GrainType::Trigger => Ok(()),
    }
}

/// The time of authoring.
pub fn created_at_ms(fields: &Fields<'_>) -> Result<i64, BadGrain> {
    let ms = match fields.get("ca") {
        Some(Item::Unsigned(ms)) => i64::try_from(*ms).ok(),
        Some(Item::Negative(ms)) => Some(*ms),
        _ => None,
    };
    ms.ok_or_else(|| wrong("ca", "milliseconds, an integer of 64 bits with sign"))
}

/// Whether a type keeps this long name for a typed field, so that no payload may carry it.
pub fn is_reserved(kind: GrainType, name: &str) -> bool {
    let own: &[&str] = match kind {
        GrainType::Tool => &TOOL_LONG,
        GrainType::Workflow => &["bindings"],
        _ => &[],
    };
    names::is_abbreviated(name) && (COMMON_LONG.contains(&name) || own.contains(&name))
}

const COMMON_LONG: [&str; 27] = [
    "author_did",
    "confidence",
    "consolidation_level",
    "content_refs",
    "context",
    "created_at",
    "derived_from",
    "embedding_refs",
    "embedding_text",
    "importance",
    "invalidation_policy",
    "namespace",
    "origin_did",
    "origin_namespace",
    "provenance_chain",
    "related_to",
    "source_type",
    "structural_tags",
    "superseded_by",
    "system_valid_from",
    "system_valid_to",
    "temporal_type",
    "type",
    "user_id",
    "valid_from",
    "valid_to",
    "verification_status",
];

const TOOL_LONG: [&str; 28] = [
    "actor_execution_environment",
    "annotations",
    "async_mode",
    "call_batch_id",
    "capabilities",
    "correlation_id",
    "duration_ms",
    "error",
    "examples",
    "executor_kind",
    "executor_uri",
    "expires_at_sec",
    "failure_cause",
    "failure_detail",
    "input",
    "input_schema",
    "is_error",
    "kind",
    "locked_params",
    "output_schema",
    "parent_task_id",
    "runtime",
    "runtime_limits",
    "spec_hash",
    "status",
    "tool_call_id",
    "tool_description",
    "tool_name",
];

fn tool(fields: &Fields<'_>) -> Result<(), BadGrain> {
    const TEXTS: [&str; 14] =
        ["aknd", "cnt", "err", "ptid", "tcid", "cbid", "tdesc", "axu", "axr", "shsh", "exk", "ast", "acid", "afc"];
    fields.need("tn", "text", is_text)?;
    if fields.text("aknd") == Some("execution") || fields.text("exk") == Some("host") {
        return Err(BadGrain::whole("kind `execution` and executor kind `host` are the defaults and are left out"));
    }
    fields.may_be(&TEXTS, "text", is_text)?;
    fields.may_be(&["afd", "aex"], "text", is_text)?;
    fields.may_be(&["iserr", "strict", "amode"], "true or false", |item| matches!(item, Item::Bool(_)))?;
    fields.may_be(&["dur", "axp"], "an integer", |item| matches!(item, Item::Unsigned(_) | Item::Negative(_)))?;
    fields.may_be(&["tdh"], "bytes", |item| matches!(item, Item::Binary(_)))?;
    fields.may_be(&["ischema", "osch", "lprm"], "a map", |item| matches!(item, Item::Map(_)))?;
    fields.may_be(&["exmp"], "a list", |item| matches!(item, Item::List(_)))?;
    fields.may_be(&["anno"], "three answers: destructive, idempotent, read_only", |item| {
        let Item::Map(entries) = item else { return false };
        entries.iter().map(|(key, _)| key.as_str()).eq(["destructive", "idempotent", "read_only"])
            && entries.iter().all(|(_, answer)| matches!(answer, Item::Bool(_)))
    })
}

fn workflow(fields: &Fields<'_>) -> Result<(), BadGrain> {
    fields.need("nodes", "a list of texts", |item| list_of(item, 0, is_text))?;
    fields.may_be(&["edges"], "a list of edges that is not empty", |item| list_of(item, 1, is_edge))?;
    fields.may_be(&["bind"], "a map of texts that is not empty", |item| map_of(item, is_text))?;
    fields.may_be(&["retries"], "a map of 32-bit numbers that is not empty", |item| map_of(item, is_u32))
}

fn is_edge(item: &Item) -> bool {
    let Item::Map(entries) = item else { return false };
    let fits = |(key, item): &(String, Item)| match key.as_str() {
        "src" | "dst" | "cond" => is_text(item),
        "mxc" => is_u32(item),
        _ => false,
    };
    let ends = entries.iter().filter(|(key, _)| key == "src" || key == "dst").count();
    ends == 2 && entries.iter().all(fits)
}

fn is_text(item: &Item) -> bool {
    matches!(item, Item::Text(_))
}

fn is_u32(item: &Item) -> bool {
    matches!(item, Item::Unsigned(value) if u32::try_from(*value).is_ok())
}

fn list_of(item: &Item, least: usize, fits: fn(&Item) -> bool) -> bool {
    matches!(item, Item::List(items) if items.len() >= least && items.iter().all(fits))
}

fn map_of(item: &Item, fits: fn(&Item) -> bool) -> bool {
    matches!(item, Item::Map(entries) if !entries.is_empty() && entries.iter().all(|(_, item)| fits(item)))
}

fn wrong(key: &str, what: &str) -> BadGrain {
    BadGrain::new(names::long(key).unwrap_or(key), format!("must be {what}"))
}
