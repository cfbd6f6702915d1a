//! Fields that a JSON document cannot write: they exist only through this interface.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Draft, Item};

/// A reference to content that is kept elsewhere.
#[derive(Debug, Clone, Default)]
pub struct ContentRef {
    /// Where it is, such as `cas://sha256:…`.
    pub uri: String,
    /// Its checksum.
    pub checksum: Option<String>,
    /// Facts about it, kept verbatim.
    pub metadata: Option<Map<String, Value>>,
    /// What it is to a reader, such as `code`.
    pub modality: Option<String>,
    /// Its MIME type.
    pub mime_type: Option<String>,
    /// Its size.
    pub size_bytes: Option<u64>,
}

/// A reference to a vector that is kept elsewhere.
#[derive(Debug, Clone, Default)]
pub struct EmbeddingRef {
    /// The vector.
    pub vector_id: String,
    /// Its length.
    pub dimensions: Option<u64>,
    /// How vectors are compared.
    pub distance_metric: Option<String>,
    /// The model that made it.
    pub model: Option<String>,
    /// What it was made from.
    pub modality_source: Option<String>,
}

/// Who may invalidate a grain, and when.
#[derive(Debug, Clone, Default)]
pub struct InvalidationPolicy {
    /// The mode.
    pub mode: String,
    /// Who may.
    pub authorized: Option<Vec<String>>,
    /// The mode when nobody may.
    pub fallback_mode: Option<String>,
    /// Not before this time, in milliseconds since 1970.
    pub locked_until: Option<i64>,
    /// Why it is protected.
    pub protection_reason: Option<String>,
    /// What it covers.
    pub scope: Option<String>,
    /// How many must agree.
    pub threshold: Option<u64>,
}

/// A link to another grain.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The other grain's address.
    pub hash: String,
    /// What it is to this one.
    pub relation_type: String,
    /// How strongly.
    pub weight: Option<f64>,
}

impl Draft {
    /// Sets the content references; none at all leaves the field out.
    pub fn content_refs(&mut self, refs: &[ContentRef]) {
        self.set_list("content_refs", refs, |reference| {
            entries([
                ("ck", text(reference.checksum.as_ref())),
                ("md", reference.metadata.as_ref().map(|members| Item::object(members, |key| key))),
                ("m", text(reference.modality.as_ref())),
                ("mt", text(reference.mime_type.as_ref())),
                ("sz", reference.size_bytes.map(Item::Unsigned)),
                ("u", text(Some(&reference.uri))),
            ])
        });
    }

    /// Sets the embedding references; none at all leaves the field out.
    pub fn embedding_refs(&mut self, refs: &[EmbeddingRef]) {
        self.set_list("embedding_refs", refs, |reference| {
            entries([
                ("di", text(reference.distance_metric.as_ref())),
                ("dm", reference.dimensions.map(Item::Unsigned)),
                ("mo", text(reference.model.as_ref())),
                ("ms", text(reference.modality_source.as_ref())),
                ("vi", text(Some(&reference.vector_id))),
            ])
        });
    }

    /// Sets the links to other grains; none at all leaves the field out. Hashes and types are not checked.
    pub fn relations(&mut self, relations: &[Relation]) {
        self.set_list("related_to", relations, |relation| {
            entries([
                ("h", text(Some(&relation.hash))),
                ("rl", text(Some(&relation.relation_type))),
                ("w", relation.weight.map(Item::Float)),
            ])
        });
    }

    /// Sets the chain of provenance, each link kept verbatim.
    pub fn provenance_chain(&mut self, links: &[Map<String, Value>]) {
        self.set_list("provenance_chain", links, |link| Item::object(link, |key| key));
    }

    /// Sets the invalidation policy.
    pub fn invalidation_policy(&mut self, policy: &InvalidationPolicy) {
        let authorized = policy.authorized.as_ref();
        let policy = entries([
            ("mode", text(Some(&policy.mode))),
            ("authorized", authorized.map(|all| Item::List(all.iter().map(|one| Item::text(one)).collect()))),
            ("fallback_mode", text(policy.fallback_mode.as_ref())),
            ("locked_until", policy.locked_until.map(Item::integer)),
            ("protection_reason", text(policy.protection_reason.as_ref())),
            ("scope", text(policy.scope.as_ref())),
            ("threshold", policy.threshold.map(Item::Unsigned)),
        ]);
        self.set("invalidation_policy", policy);
    }

    fn set_list<T>(&mut self, long: &str, values: &[T], item: impl Fn(&T) -> Item) {
        if !values.is_empty() {
            self.set(long, Item::List(values.iter().map(item).collect()));
        }
    }
}

fn text(value: Option<&String>) -> Option<Item> {
    value.map(|value| Item::text(value))
}

fn entries<const N: usize>(entries: [(&str, Option<Item>); N]) -> Item {
    let present = entries.into_iter().filter_map(|(key, item)| Some((key.to_owned(), item?)));
    Item::map(present.collect::<BTreeMap<_, _>>())
}
