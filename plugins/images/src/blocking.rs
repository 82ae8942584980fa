//! Work that may wait for the disk, on threads of its own and never on the runtime's.

use std::io;

use tokio::sync::oneshot;

/// Enough for every call into the kernel; walks keep their state on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Does `work` on a thread of its own, which holds `permit` until it ends: who waits may go away before.
pub(crate) async fn run<T: Send + 'static>(
    permit: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("images".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let result = work();
            drop(permit);
            drop(sender.send(result));
        })?;
    receiver
        .await
        .map_err(|_| io::Error::other("the thread that worked on it panicked"))
}
