//! What the driver is asked to take away when bringing a volume failed: whatever may be there, and nothing else.

use tonic::Code;

use crate::block::{self, Released};
use crate::double::Fault;
use crate::rig::{Rig, rig};

const LATE: Option<Code> = Some(Code::DeadlineExceeded);
const FAILED: Option<Code> = Some(Code::Internal);
const WELL: Option<Code> = None;

/// Orders how the next call of that word ends.
fn ends(rig: &Rig, word: &'static str, end: Option<Code>) {
    if let Some(code) = end {
        rig.double.fail(word, Fault::Says(code));
    }
}

/// How often it was asked this since it was last looked.
fn times(rig: &Rig, word: &str) -> usize {
    let words = rig.double.words();
    words.into_iter().filter(|&asked| asked == word).count()
}

/// Upstream's Test_UncertainDeviceGlobalMounts.
#[tokio::test]
async fn what_may_be_staged_is_unstaged() {
    for (calls, expected) in [
        (&[LATE][..], 1),
        (&[FAILED], 0),
        (&[LATE, FAILED], 0),
        (&[WELL, LATE], 1),
        (&[WELL, FAILED], 1),
    ] {
        let mut rig = rig().await;
        for &end in calls {
            ends(&rig, "stage", end);
            assert_eq!(rig.stage().await.is_ok(), end.is_none(), "{calls:?}");
        }
        rig.unstage().await.unwrap();
        assert_eq!(times(&rig, "unstage"), expected, "{calls:?}");
        rig.assert_clean();
    }
}

/// The same of raw volumes. What was staged already is not staged again but after a restart, and then a failure that is
/// final ends it, as upstream's cleanupOrphanDeviceFiles.
#[tokio::test]
async fn what_may_be_staged_raw_is_unstaged() {
    for (calls, expected) in [
        (&[LATE][..], 1),
        (&[FAILED], 0),
        (&[LATE, FAILED], 0),
        (&[WELL, LATE], 1),
        (&[WELL, FAILED], 0),
    ] {
        let mut rig = rig().await;
        for &end in calls {
            ends(&rig, "stage", end);
            let staged = block::stage(&mut rig).await;
            assert_eq!(staged.is_ok(), end.is_none(), "{calls:?}");
        }
        block::unstage(&mut rig, "").await.unwrap();
        assert_eq!(times(&rig, "unstage"), expected, "{calls:?}");
        rig.assert_clean();
    }
}

/// Upstream's Test_UncertainVolumeMountState.
#[tokio::test]
async fn what_may_be_published_is_unpublished() {
    for (calls, expected) in [
        (&[LATE][..], 1),
        (&[FAILED], 0),
        (&[LATE, FAILED], 0),
        (&[WELL, LATE], 1),
        (&[WELL, FAILED], 1),
    ] {
        let mut rig = rig().await;
        rig.stage().await.unwrap();
        for &end in calls {
            ends(&rig, "publish", end);
            assert_eq!(rig.mount("u1").await.is_ok(), end.is_none(), "{calls:?}");
        }
        rig.unmount("u1").await.unwrap();
        rig.unstage().await.unwrap();
        let words = rig.double.words();
        let times = |word: &str| words.iter().filter(|&&asked| asked == word).count();
        assert_eq!((times("unpublish"), times("unstage")), (expected, 1));
        rig.assert_clean();
    }
}

/// The same of raw volumes. What is written down is the volume's, not the pod's: the driver is asked even if it said
/// that it failed, which changes nothing then.
#[tokio::test]
async fn what_may_be_published_raw_is_unpublished() {
    for calls in [
        &[LATE][..],
        &[FAILED],
        &[LATE, FAILED],
        &[WELL, LATE],
        &[WELL, FAILED],
    ] {
        let mut rig = rig().await;
        let _released = Released(rig.home.path().to_owned());
        block::stage(&mut rig).await.unwrap();
        for &end in calls {
            ends(&rig, "publish", end);
            let mapped = block::map(&mut rig, "u1").await;
            assert_eq!(mapped.is_ok(), end.is_none(), "{calls:?} {mapped:?}");
        }
        block::unmap(&mut rig, "u1").await.unwrap();
        assert_eq!(times(&rig, "unpublish"), 1, "{calls:?}");
        block::unstage(&mut rig, "").await.unwrap();
        assert_eq!(times(&rig, "unstage"), 1, "{calls:?}");
        rig.assert_clean();
    }
}
