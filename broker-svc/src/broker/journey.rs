//! One call on its way: each request of it decided, vetted, given its credential and sent, until an answer is none that leads on.

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::{
    Broker,
    asked::{Asked, idempotency_key},
    trail::Trail,
};
use crate::{
    artifact::{self, Wanted},
    credential::{self, Attached},
    decide::{self, Ask},
    method::Method,
    pace::Counted,
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
    /// The key by which its origin knows a repeated call.
    idempotency_key: Option<String>,
}

/// What a call costs; it goes back unless the call is made.
pub struct Cost<'a> {
    /// Of the effect's budget.
    pub spend: Spend<'a>,
    /// Of the tool's rate.
    pub counted: Option<Counted<'a>>,
}

/// The end of it.
pub struct Arrival {
    /// The last answer.
    pub answer: Answer,
    /// Every secret that an upstream on the way may know.
    pub known: Vec<Arc<Attached>>,
}

impl Journey<'_> {
    /// Goes all the way. The budget is spent once the first address is good. What is said of a failure is partly the upstreams'
    /// words: it names none of the secrets that they know.
    pub async fn make(&self, body: Bytes, cost: Cost<'_>, trail: &mut Trail<'_>) -> Result<Arrival, Refusal> {
        let mut known = Vec::new();
        match self.travel(body, cost, trail, &mut known).await {
            Ok(answer) => Ok(Arrival { answer, known }),
            Err(Refusal { why, text }) => Err(Refusal::new(why, scrubbed(text, &known))),
        }
    }

    async fn travel(
        &self,
        body: Bytes,
        cost: Cost<'_>,
        trail: &mut Trail<'_>,
        known: &mut Vec<Arc<Attached>>,
    ) -> Result<Answer, Refusal> {
        let asked = self.asked;
        let mut leg = Leg {
            target: asked.target.clone(),
            method: asked.method,
            credential: asked.credential.clone(),
            listed_addresses_only: asked.listed_addresses_only,
            body,
            answer_bytes_max: asked.answer_bytes_max,
            idempotency_key: None,
        };
        let mut cost = Some(cost);
        for _ in 0..=REDIRECTS_MAX {
            let gone = self.go(&mut leg, &mut cost, trail).await;
            learn(known, self.known_at(&leg));
            let (answer, attached) = gone?;
            learn(known, attached);
            let Some(location) = redirect::location(answer.status, &answer.headers) else { return Ok(answer) };
            let place = (answer.status, location.to_vec());
            leg = self.onward(leg, place, known, trail)?;
        }
        Err(redirect::refused(format!("the answer redirects more than {REDIRECTS_MAX} times")))
    }

    fn known_at(&self, leg: &Leg) -> Vec<Arc<Attached>> {
        let in_force = &self.asked.in_force;
        in_force.keyring.known_at(&in_force.policy, leg.target.origin())
    }

    /// The next request, decided anew.
    fn onward(
        &self,
        leg: Leg,
        (status, location): (u16, Vec<u8>),
        known: &[Arc<Attached>],
        trail: &mut Trail<'_>,
    ) -> Result<Leg, Refusal> {
        // Whatever form an upstream copied a secret in, it goes nowhere that it was not meant for, and into no record.
        let repeats = || redirect::refused(format!("{} redirects to a URL that repeats a secret", leg.target.origin()));
        let tells = |text: &str| known.iter().any(|attached| attached.is_in(text));
        if tells(redirect::before_query(&String::from_utf8_lossy(&location))) {
            return Err(repeats());
        }
        let policy = &self.asked.in_force.policy;
        let injected = leg.credential.as_ref().and_then(|name| policy.credentials.get(name)?.kind.parameter());
        let from = From { target: &leg.target, method: leg.method, had_body: !leg.body.is_empty(), injected };
        let next = redirect::next(from, status, &location)?;
        let url = next.target.url();
        if tells(url.as_str()) || url.domain().is_some_and(|name| tells(&url::quirks::domain_to_unicode(name))) {
            return Err(repeats());
        }
        trail.redirected(&next.target);
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
            idempotency_key: leg.idempotency_key.filter(|_| !next.crossed),
            body: if next.with_body { leg.body } else { Bytes::new() },
            target: next.target,
        })
    }

    /// One request, and a second one where the first one's credential was refused and there is another.
    async fn go(
        &self,
        leg: &mut Leg,
        cost: &mut Option<Cost<'_>>,
        trail: &mut Trail<'_>,
    ) -> Result<(Answer, Option<Arc<Attached>>), Refusal> {
        let asked = self.asked;
        let attached = self.attached(leg).await?;
        let egress = &asked.in_force.policy.egress;
        let addresses = self.broker.courier.vet(egress, &leg.target, leg.listed_addresses_only).await?;
        let mut number = None;
        if let Some(Cost { spend, counted }) = cost.take() {
            spend.keep();
            if let Some(counted) = counted {
                counted.keep();
            }
            number = self.name(leg);
        }
        let outcome = self.send(leg, &addresses, attached.as_deref(), trail).await;
        if let Some(number) = number.filter(|_| !trail.went_out()) {
            self.permit.not_named(number);
        }
        let answer = outcome?;
        let (Some(refused), Some(name)) = (&attached, &leg.credential) else { return Ok((answer, attached)) };
        if answer.status != 401 || !asked.in_force.keyring.reject(name, refused) || leg.is_writing() {
            return Ok((answer, attached));
        }
        let renewed = self.attached(leg).await?;
        Ok((self.send(leg, &addresses, renewed.as_deref(), trail).await?, renewed))
    }

    /// Gives a writing call its key, now that it will be sent. Answers its number, where it was counted here.
    fn name(&self, leg: &mut Leg) -> Option<u32> {
        if !self.asked.honours_key || !leg.is_writing() {
            return None;
        }
        let counted = self.asked.ordinal.is_none().then(|| self.permit.next_named());
        let number = self.asked.ordinal.or(counted)?;
        leg.idempotency_key = Some(idempotency_key(self.permit, number));
        counted
    }

    async fn send(
        &self,
        leg: &Leg,
        addresses: &[IpAddr],
        attached: Option<&Attached>,
        trail: &mut Trail<'_>,
    ) -> Result<Answer, Refusal> {
        let request = self.request(leg, attached)?;
        let scrub = |text| scrubbed(text, &self.known_at(leg));
        let before = trail.goes_out();
        let outbound = Outbound {
            target: &leg.target,
            addresses,
            credential: leg.credential.as_deref(),
            request,
            answer_bytes_max: leg.answer_bytes_max,
            scrub: &scrub,
        };
        let outcome = self.broker.courier.send(outbound).await;
        if !before && matches!(&outcome, Err(refusal) if refusal.why == Why::ConnectFailed) {
            trail.stayed();
        }
        outcome
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
        if let Some(key) = leg.idempotency_key.as_ref().filter(|_| leg.is_writing()) {
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

impl Leg {
    fn is_writing(&self) -> bool {
        !matches!(self.method, Method::Get | Method::Head)
    }
}

/// Each secret once, however many upstreams on the way know it.
fn learn(known: &mut Vec<Arc<Attached>>, more: impl IntoIterator<Item = Arc<Attached>>) {
    for attached in more {
        if !known.iter().any(|held| Arc::ptr_eq(held, &attached)) {
            known.push(attached);
        }
    }
}

fn scrubbed(text: String, known: &[Arc<Attached>]) -> String {
    known.iter().fold(text, |text, attached| attached.scrub_text(text))
}
