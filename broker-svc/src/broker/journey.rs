//! One call on its way: each request of it decided, vetted, given its credential and sent, until an answer is none that leads on.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::{Broker, asked::Asked, trail::Trail};
use crate::{
    artifact::{self, Wanted},
    credential::{self, Attached},
    decide::{self, Ask},
    method::Method,
    redirect::{self, From, REDIRECTS_MAX},
    refusal::{Refusal, Why},
    send::{self, Answer, Outbound, Outgoing},
    target::Target,
    token::{Permit, Spend},
};

/// The header by which an upstream knows a repeated call.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A call under way.
pub struct Journey<'a> {
    pub broker: &'a Broker,
    pub permit: &'a Permit,
    pub asked: &'a Asked,
}

/// One request of it.
struct Leg {
    target: Target,
    method: Method,
    credential: Option<String>,
    listed_addresses_only: bool,
    body: Bytes,
    answer_bytes_max: u64,
}

/// The end of it.
pub struct Arrival {
    /// The last answer.
    pub answer: Answer,
    /// Every secret that an upstream on the way may know.
    pub known: Vec<Arc<Attached>>,
}

impl Journey<'_> {
    /// Goes all the way. The budget is spent once the first address is good.
    pub async fn make(&self, body: Bytes, spend: Spend<'_>, trail: &mut Trail<'_>) -> Result<Arrival, Refusal> {
        let asked = self.asked;
        let mut leg = Leg {
            target: asked.target.clone(),
            method: asked.method,
            credential: asked.credential.clone(),
            listed_addresses_only: asked.listed_addresses_only,
            body,
            answer_bytes_max: asked.answer_bytes_max,
        };
        let (mut spend, mut known) = (Some(spend), Vec::new());
        for _ in 0..=REDIRECTS_MAX {
            let (answer, attached) = self.go(&leg, &mut spend, trail).await?;
            known.extend(attached.clone());
            known.extend(asked.in_force.keyring.known_at(&asked.in_force.policy, leg.target.origin()));
            let Some(location) = redirect::location(answer.status, &answer.headers) else {
                return Ok(Arrival { answer, known });
            };
            let place = (answer.status, location.to_vec());
            leg = self.onward(leg, place, attached.as_deref(), trail)?;
        }
        Err(redirect::refused(format!("the answer redirects more than {REDIRECTS_MAX} times")))
    }

    /// The next request, decided anew.
    fn onward(
        &self,
        leg: Leg,
        (status, location): (u16, Vec<u8>),
        attached: Option<&Attached>,
        trail: &mut Trail<'_>,
    ) -> Result<Leg, Refusal> {
        let policy = &self.asked.in_force.policy;
        let injected = leg.credential.as_ref().and_then(|name| policy.credentials.get(name)?.kind.parameter());
        let from = From { target: &leg.target, method: leg.method, had_body: !leg.body.is_empty(), injected };
        let next = redirect::next(from, status, &location)?;
        trail.redirected(&next.target);
        // Whatever form the upstream copied a secret in, it goes nowhere that it was not meant for.
        if attached.is_some_and(|attached| attached.is_in(next.target.url().as_str().as_bytes())) {
            return Err(redirect::refused(format!(
                "{} redirects to a URL that repeats the credential",
                leg.target.origin()
            )));
        }
        let credential = leg.credential.filter(|_| !next.crossed);
        let names = self.asked.given.names();
        let ask = Ask {
            target: &next.target,
            method: next.method.as_str(),
            credential: credential.as_deref(),
            headers: &names,
        };
        let allowed = decide::decide(policy, self.permit.right(), ask).map_err(|refusal| {
            let text = format!("{} redirects to {}: {}", leg.target.origin(), next.target.origin(), refusal.text);
            Refusal::new(refusal.why, text)
        })?;
        let wanted =
            Wanted { body_bytes: self.asked.wanted.body_bytes.filter(|_| next.with_body), ..self.asked.wanted };
        let mut answer_bytes_max = self.asked.answer_bytes_max;
        if wanted.any() {
            let here = artifact::answer_bytes_max(policy, self.permit.right(), ask, wanted)?;
            answer_bytes_max = if wanted.answer { answer_bytes_max.min(here) } else { answer_bytes_max };
        }
        Ok(Leg {
            answer_bytes_max,
            method: allowed.method,
            listed_addresses_only: allowed.listed_addresses_only,
            credential,
            body: if next.with_body { leg.body } else { Bytes::new() },
            target: next.target,
        })
    }

    /// One request, and a second one where the first one's credential was refused and there is another.
    async fn go(
        &self,
        leg: &Leg,
        spend: &mut Option<Spend<'_>>,
        trail: &mut Trail<'_>,
    ) -> Result<(Answer, Option<Arc<Attached>>), Refusal> {
        let asked = self.asked;
        let attached = self.attached(leg).await?;
        let (courier, egress) = (&self.broker.courier, &asked.in_force.policy.egress);
        let addresses = courier.vet(egress, &leg.target, leg.listed_addresses_only).await?;
        if let Some(spend) = spend.take() {
            spend.keep();
        }
        let send = async |attached: Option<&Attached>| {
            courier
                .send(Outbound {
                    target: &leg.target,
                    addresses: &addresses,
                    credential: leg.credential.as_deref(),
                    request: self.request(leg, attached)?,
                    answer_bytes_max: leg.answer_bytes_max,
                })
                .await
        };
        let answer = send(attached.as_deref()).await?;
        trail.went_out();
        let (Some(refused), Some(name)) = (&attached, &leg.credential) else { return Ok((answer, attached)) };
        let reading = matches!(leg.method, Method::Get | Method::Head);
        if answer.status != 401 || !asked.in_force.keyring.reject(name, refused) || !reading {
            return Ok((answer, attached));
        }
        let renewed = self.attached(leg).await?;
        Ok((send(renewed.as_deref()).await?, renewed))
    }

    async fn attached(&self, leg: &Leg) -> Result<Option<Arc<Attached>>, Refusal> {
        match &leg.credential {
            Some(name) => credential::attached(&self.asked.in_force, &self.broker.courier, name).await.map(Some),
            None => Ok(None),
        }
    }

    fn request(&self, leg: &Leg, attached: Option<&Attached>) -> Result<Outgoing, Refusal> {
        let given = &self.asked.given;
        let mut headers = send::headers(given.lines.clone(), given.content_type.clone(), &leg.body);
        let writing = !matches!(leg.method, Method::Get | Method::Head);
        if let Some(key) = self.asked.idempotency_key.as_ref().filter(|_| writing) {
            let value = HeaderValue::from_str(key)
                .map_err(|_| Refusal::new(Why::InvalidHeader, "the idempotency key cannot be sent"))?;
            headers.insert(IDEMPOTENCY_KEY, value);
        }
        let mut request =
            Outgoing { method: leg.method, url: leg.target.url().clone(), headers, body: leg.body.clone() };
        if let Some(attached) = attached {
            attached.onto(&mut request, self.broker.now())?;
        }
        Ok(request)
    }
}
