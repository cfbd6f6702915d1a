//! Which replica a digest prefers: rendezvous hashing, so that one that leaves moves only its own digests.

use content_digest::{Digest, Hasher};

/// The replicas' indices in this digest's order of preference.
pub(super) fn order<'a>(replicas: impl IntoIterator<Item = &'a str>, digest: &Digest) -> Vec<usize> {
    let mut scored: Vec<_> =
        replicas.into_iter().enumerate().map(|(index, name)| (score(name, digest), index)).collect();
    scored.sort_unstable_by(|left, right| right.cmp(left));
    scored.into_iter().map(|(_, index)| index).collect()
}

fn score(name: &str, digest: &Digest) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(digest.as_bytes());
    hasher.update(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: [&str; 3] = ["http://a:1", "http://b:1", "http://c:1"];

    #[test]
    fn digests_spread_over_the_replicas_and_keep_their_order() {
        let mut firsts = [0; 3];
        for number in 0..300_u32 {
            let digest = Digest::of(number.to_be_bytes());
            let order_now = order(THREE, &digest);
            assert_eq!(order_now, order(THREE, &digest));
            firsts[order_now[0]] += 1;
        }
        assert!(firsts.iter().all(|count| *count > 60), "{firsts:?}");
    }

    #[test]
    fn a_replica_that_leaves_moves_only_its_own_digests() {
        for number in 0..100_u32 {
            let digest = Digest::of(number.to_be_bytes());
            let with = order(THREE, &digest);
            let without = order(THREE[..2].iter().copied(), &digest);
            if with[0] != 2 {
                assert_eq!(with[0], without[0]);
            }
        }
    }
}
