//! Tokens that an authorization server mints: client credentials and refresh tokens, by the `oauth2` crate over our own sender.

use std::time::Duration;

use http::HeaderMap;
use oauth2::{
    AccessToken, AsyncHttpClient, AuthType, Client, ClientId, EndpointNotSet, HttpRequest, HttpResponse, RefreshToken,
    RequestTokenError, Scope, StandardRevocableToken, TokenResponse, TokenUrl,
    basic::{
        BasicErrorResponse, BasicErrorResponseType, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse,
        BasicTokenType,
    },
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Secret, Shape, source::Unreadable};
use crate::{
    method::Method,
    policy::{ClientAuth, Flow, OAuth, Policy},
    refusal::Refusal,
    send::{Courier, Own},
};

/// Life of a token whose server does not say.
const LIFE_UNSAID: Duration = Duration::from_secs(300);
/// Longest life that is believed.
const LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A fresh token.
pub struct Minted {
    /// The access token.
    pub token: Secret,
    /// How long it lives.
    pub life: Duration,
    /// The refresh token that takes the place of the one that was spent, if the server rotates them.
    pub refresh_token: Option<Secret>,
}

/// The server's answer, with every kind of `expires_in` that servers send.
#[derive(Debug, Serialize, Deserialize)]
struct TokenAnswer {
    access_token: AccessToken,
    token_type: String,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<RefreshToken>,
    #[serde(skip, default = "bearer")]
    kind: BasicTokenType,
}

fn bearer() -> BasicTokenType {
    BasicTokenType::Bearer
}

impl TokenResponse for TokenAnswer {
    type TokenType = BasicTokenType;

    fn access_token(&self) -> &AccessToken {
        &self.access_token
    }

    fn token_type(&self) -> &BasicTokenType {
        &self.kind
    }

    fn expires_in(&self) -> Option<Duration> {
        life(self.expires_in.as_ref())
    }

    fn refresh_token(&self) -> Option<&RefreshToken> {
        self.refresh_token.as_ref()
    }

    fn scopes(&self) -> Option<&Vec<Scope>> {
        None
    }
}

type TokenClient = Client<
    BasicErrorResponse,
    TokenAnswer,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    oauth2::EndpointSet,
>;

/// What is shown to the server.
pub struct Shown {
    /// The credential's own value: the client's secret or the refresh token.
    pub value: Secret,
    /// The client's secret beside a refresh token.
    pub client_secret: Option<Secret>,
}

/// Asks for a token. The caller bounds the time.
pub async fn mint(oauth: &OAuth, shown: &Shown, policy: &Policy, courier: &Courier) -> Result<Minted, Unreadable> {
    let secret = match oauth.flow {
        Flow::ClientCredentials => Some(&shown.value),
        Flow::Refresh => shown.client_secret.as_ref(),
    };
    let client = client(oauth, secret)?;
    // As they are and as a form has them, which is also what their base64 is of.
    let secrets = std::iter::once(&shown.value).chain(&shown.client_secret);
    let shown_forms: Vec<_> = secrets.flat_map(|secret| [secret.again(), secret.as_parameter()]).collect();
    let http = Http { policy, courier, oauth, shown: &shown_forms };
    let scopes = oauth.scopes.iter().cloned().map(Scope::new);
    let audience = oauth.audience.clone();
    let answer = match oauth.flow {
        Flow::ClientCredentials => {
            let request = client.exchange_client_credentials().add_scopes(scopes);
            match audience {
                Some(audience) => request.add_extra_param("audience", audience).request_async(&http).await,
                None => request.request_async(&http).await,
            }
        }
        Flow::Refresh => {
            let token = shown.value.refresh_token();
            let request = client.exchange_refresh_token(&token).add_scopes(scopes);
            match audience {
                Some(audience) => request.add_extra_param("audience", audience).request_async(&http).await,
                None => request.request_async(&http).await,
            }
        }
    };
    taken(answer.map_err(|cause| Unreadable::Server(said(&cause)))?)
}

fn client(oauth: &OAuth, secret: Option<&Secret>) -> Result<TokenClient, Unreadable> {
    let url = TokenUrl::new(oauth.token_url.url().to_string())
        .map_err(|cause| Unreadable::Server(format!("the token endpoint's URL: {cause}")))?;
    let client =
        Client::new(ClientId::new(oauth.client_id.clone())).set_token_uri(url).set_auth_type(match oauth.client_auth {
            ClientAuth::Basic => AuthType::BasicAuth,
            ClientAuth::Body => AuthType::RequestBody,
        });
    Ok(match secret {
        Some(secret) => client.set_client_secret(secret.client_secret()),
        None => client,
    })
}

fn taken(answer: TokenAnswer) -> Result<Minted, Unreadable> {
    let server = |text: &str| Unreadable::Server(text.to_owned());
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(server("the token endpoint minted something else than a bearer token"));
    }
    let life = match &answer.expires_in {
        None | Some(serde_json::Value::Null) => LIFE_UNSAID,
        given => life(given.as_ref())
            .ok_or_else(|| server("the token endpoint minted a token with no life left, or of no known length"))?,
    };
    let take = |text: String| Secret::take(Zeroizing::new(text.into_bytes()), Shape::Token);
    Ok(Minted {
        token: take(answer.access_token.into_secret())?,
        life,
        refresh_token: answer.refresh_token.map(|token| take(token.into_secret())).transpose()?,
    })
}

/// The life that an `expires_in` means: whole or broken seconds, as a number or as text, never over a day.
fn life(given: Option<&serde_json::Value>) -> Option<Duration> {
    let seconds = match given? {
        serde_json::Value::Number(number) => number.as_f64()?,
        serde_json::Value::String(text) => text.parse::<u64>().ok()? as f64,
        _ => return None,
    };
    // Not a number and nothing left are no life; anything else is at most a day.
    (seconds >= 1.0).then(|| Duration::from_secs_f64(seconds.min(LIFE_MAX.as_secs_f64())))
}

/// Sends through the broker's own decision and address checks.
struct Http<'a> {
    policy: &'a Policy,
    courier: &'a Courier,
    oauth: &'a OAuth,
    shown: &'a [Secret],
}

impl<'c> AsyncHttpClient<'c> for Http<'_> {
    type Error = Refusal;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<HttpResponse, Refusal>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let headers: HeaderMap = parts.headers;
            // The URL is the configuration's, not the library's rendering of it.
            let (target, body) = (&self.oauth.token_url, Zeroizing::new(body));
            let own = Own { target, method: Method::Post, headers, body, shown: self.shown };
            let answer = self.courier.own(self.policy, own).await?;
            let mut response = HttpResponse::new(answer.body);
            *response.status_mut() = http::StatusCode::from_u16(answer.status).unwrap_or(http::StatusCode::BAD_GATEWAY);
            Ok(response)
        })
    }
}

/// What may be said of a failure: never the server's words but for the error codes that everybody knows, for any other word may
/// be a secret that it was shown.
fn said(cause: &RequestTokenError<Refusal, BasicErrorResponse>) -> String {
    match cause {
        RequestTokenError::ServerResponse(answer) => match answer.error() {
            BasicErrorResponseType::Extension(_) => "the token endpoint refused, with a code of its own".to_owned(),
            known => format!("the token endpoint refused: {}", known.as_ref()),
        },
        RequestTokenError::Request(refusal) => format!("the token endpoint: {}", refusal.text),
        RequestTokenError::Parse(..) => "the token endpoint's answer is no token answer".to_owned(),
        RequestTokenError::Other(_) => "the token endpoint answered with an error, or with nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c8_every_kind_of_expires_in_is_a_sane_life_or_none() {
        for (given, seconds) in [
            ("3600", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("1e18", Some(86_400)),
            ("1000000000000000000", Some(86_400)),
            ("0", None),
            ("-5", None),
            ("\"soon\"", None),
            ("\"-1\"", None),
            ("true", None),
            ("[]", None),
        ] {
            let value: serde_json::Value = serde_json::from_str(given).unwrap();
            assert_eq!(life(Some(&value)).map(|life| life.as_secs()), seconds, "{given}");
        }
    }
}
