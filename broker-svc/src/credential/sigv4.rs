//! AWS Signature Version 4: the request as it will be sent, its body's digest included.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign as sign_request,
    },
    sign::v4,
};
use http::{HeaderName, HeaderValue};

use crate::{
    policy::SigV4,
    refusal::{Refusal, Why},
    send::Outgoing,
};

/// Signs. What is signed is what is sent: the path has no dot segments, and a service that folds doubled slashes before it
/// checks a signature is met by folding them in what is signed.
pub fn sign(request: &mut Outgoing, signer: &SigV4, key: &Credentials, now: SystemTime) -> Result<(), Refusal> {
    sign_as(settings(&signer.service), request, signer, key, now)
}

/// How a service wants its requests signed: S3 alone takes the path as it is, and wants the body's digest in a header.
fn settings(service: &str) -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Enabled;
    settings.percent_encoding_mode = PercentEncodingMode::Double;
    if service == "s3" {
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    settings
}

fn sign_as(
    settings: SigningSettings,
    request: &mut Outgoing,
    signer: &SigV4,
    key: &Credentials,
    now: SystemTime,
) -> Result<(), Refusal> {
    let failed = |cause: &dyn std::fmt::Display| {
        tracing::warn!(%cause, "a request cannot be signed");
        Refusal::new(Why::CredentialUnavailable, "the request cannot be signed for AWS: its headers have to be text")
    };
    let identity = key.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(&signer.region)
        .name(&signer.service)
        .time(now)
        .settings(settings)
        .build()
        .map_err(|cause| failed(&cause))?
        .into();
    let lines = request.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let signable =
        SignableRequest::new(request.method.as_str(), request.url.as_str(), lines, SignableBody::Bytes(&request.body))
            .map_err(|cause| failed(&cause))?;
    let (instructions, _signature) = sign_request(signable, &params).map_err(|cause| failed(&cause))?.into_parts();
    for (name, text) in instructions.headers() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|cause| failed(&cause))?;
        let mut value = HeaderValue::from_str(text).map_err(|cause| failed(&cause))?;
        value.set_sensitive(true);
        request.headers.insert(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
