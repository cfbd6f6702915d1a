//! A credential as it goes onto a request, and what an answer must not say of it.

use std::time::SystemTime;

use http::{HeaderName, header};

use super::{Secret, sigv4};
use crate::{
    policy::{Kind, SigV4},
    refusal::Refusal,
    send::Outgoing,
};

/// A value in the form in which it is attached. No Debug: it holds secrets.
pub struct Attached {
    form: Form,
    /// Everything that an upstream was shown and may echo, in the form of its source and in the one that is sent.
    shown: Vec<Secret>,
}

enum Form {
    Line { slot: HeaderName, prefix: &'static str },
    Pair(Secret),
    Query(String),
    Signature { signer: SigV4, key: Secret },
}

impl Attached {
    /// A value of its kind. `further` is a session token, where there is one.
    pub fn new(kind: &Kind, value: Secret, further: Option<Secret>) -> Self {
        match kind {
            Kind::Bearer | Kind::OAuth(_) => {
                Self { form: Form::Line { slot: header::AUTHORIZATION, prefix: "Bearer " }, shown: vec![value] }
            }
            Kind::Header(slot) => Self { form: Form::Line { slot: slot.clone(), prefix: "" }, shown: vec![value] },
            Kind::Basic(user) => {
                let pair = match user {
                    Some(user) => value.behind_user(user),
                    None => value,
                };
                Self { shown: vec![pair.again(), pair.part_of_pair(), pair.as_basic()], form: Form::Pair(pair) }
            }
            Kind::Query(name) => {
                let rendered = value.as_parameter();
                Self { form: Form::Query(name.clone()), shown: vec![value, rendered] }
            }
            Kind::SigV4(signer) => {
                let key = value.again();
                let shown = further.into_iter().chain([value]).collect();
                Self { form: Form::Signature { signer: signer.clone(), key }, shown }
            }
        }
    }

    /// Attaches it. The request is otherwise as it will be sent.
    pub fn onto(&self, request: &mut Outgoing, now: SystemTime) -> Result<(), Refusal> {
        let value = self.shown.first();
        match &self.form {
            Form::Line { slot, prefix } => {
                request.headers.extend(value.map(|value| (slot.clone(), value.line(prefix))));
            }
            Form::Pair(pair) => {
                request.headers.insert(header::AUTHORIZATION, pair.basic());
            }
            Form::Query(name) => {
                if let Some(value) = value {
                    value.into_query(&mut request.url, name);
                }
            }
            Form::Signature { signer, key } => {
                let session = self.shown.first().filter(|_| signer.session_token.is_some());
                sigv4::sign(request, signer, &key.signing_key(&signer.access_key_id, session), now)?;
            }
        }
        Ok(())
    }

    /// Takes every echo out.
    pub fn scrub(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.shown.iter().fold(bytes, |bytes, secret| secret.scrub(bytes))
    }

    /// Takes every echo, in whatever case, out of a text that is partly an upstream's.
    pub fn scrub_text(&self, text: String) -> String {
        self.shown.iter().fold(text, |text, secret| secret.scrub_text(text))
    }

    /// Whether a URL or a part of it holds an echo, in whatever case.
    pub fn is_in(&self, text: &str) -> bool {
        self.shown.iter().any(|secret| secret.is_in(text.as_bytes()))
    }
}
