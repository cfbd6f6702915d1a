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

/// Signs. The path has no dot segments and is sent as it stands, so that nothing is normalised.
pub fn sign(request: &mut Outgoing, signer: &SigV4, key: &Credentials, now: SystemTime) -> Result<(), Refusal> {
    let failed = |cause: &dyn std::fmt::Display| {
        tracing::warn!(%cause, "a request cannot be signed");
        Refusal::new(Why::CredentialUnavailable, "the request cannot be signed for AWS: its headers have to be text")
    };
    let mut settings = SigningSettings::default();
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    // S3 alone takes the path as it is, and wants the body's digest in a header.
    if signer.service == "s3" {
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
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
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use http::HeaderMap;

    use super::*;
    use crate::method::Method;

    /// 2015-08-30T12:36:00Z and 2013-05-24T00:00:00Z: the times of AWS' published examples.
    const SUITE: u64 = 1_440_938_160;
    const S3: u64 = 1_369_353_600;

    fn signed(service: &str, at: u64, request: (&str, &str, &[(&str, &str)], &str)) -> Outgoing {
        let (method, url, lines, body) = request;
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let url = url::Url::parse(url).unwrap();
        let mut request =
            Outgoing { method: Method::parse(method).unwrap(), url, headers, body: body.to_owned().into() };
        let (region, service) = ("us-east-1".to_owned(), service.to_owned());
        let (id, key) = match at {
            S3 => ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            _ => ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        };
        let signer = SigV4 { access_key_id: id.to_owned(), region, service, session_token: None };
        let key = Credentials::new(id, key, None, None, "test");
        sign(&mut request, &signer, &key, UNIX_EPOCH + Duration::from_secs(at)).unwrap();
        request
    }

    fn signature(request: &Outgoing) -> String {
        let line = request.headers["authorization"].to_str().unwrap();
        line.split("Signature=").nth(1).unwrap().to_owned()
    }

    #[test]
    fn signatures_are_those_of_the_published_test_suite() {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let path = format!("https://example.amazonaws.com/{unreserved}");
        let query = format!("https://example.amazonaws.com/?{unreserved}={unreserved}");
        for (name, request, expected) in [
            (
                "get-vanilla",
                ("GET", "https://example.amazonaws.com/", &[][..], ""),
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "get-vanilla-query-order-key-case",
                ("GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1", &[], ""),
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "get-unreserved",
                ("GET", path.as_str(), &[], ""),
                "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
            ),
            (
                "get-vanilla-query-unreserved",
                ("GET", query.as_str(), &[], ""),
                "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
            ),
            (
                "get-vanilla-utf8-query",
                ("GET", "https://example.amazonaws.com/?\u{1234}=bar", &[], ""),
                "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
            ),
            (
                "post-vanilla",
                ("POST", "https://example.amazonaws.com/", &[], ""),
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-vanilla-query",
                ("POST", "https://example.amazonaws.com/?Param1=value1", &[], ""),
                "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
            ),
            (
                "post-x-www-form-urlencoded",
                ("POST", "https://example.amazonaws.com/", &form, "Param1=value1"),
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-header-key-sort",
                ("POST", "https://example.amazonaws.com/", &[("my-header1", "value1")], ""),
                "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
            ),
        ] {
            let request = signed("service", SUITE, request);
            assert_eq!(signature(&request), expected, "{name}");
            assert_eq!(request.headers["x-amz-date"], "20150830T123600Z");
        }
    }

    #[test]
    fn signatures_are_those_of_the_published_examples_of_s3() {
        for (name, request, expected) in [
            (
                "get an object",
                ("GET", "https://examplebucket.s3.amazonaws.com/test.txt", &[("range", "bytes=0-9")][..], ""),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "put an object",
                (
                    "PUT",
                    "https://examplebucket.s3.amazonaws.com/test%24file.text",
                    &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
                    "Welcome to Amazon S3.",
                ),
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "get a bucket's lifecycle",
                ("GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", &[], ""),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "list a bucket",
                ("GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", &[], ""),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            assert_eq!(signature(&signed("s3", S3, request)), expected, "{name}");
        }
    }
}
