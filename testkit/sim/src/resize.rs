//! A client that makes its disk larger and smaller, sometimes while it writes to what is being cut off.
//!
//! What a shrink cuts off is gone for good: however the disk grows later, zeros are there. A write to it that is under way either came
//! before, and is cut off too, or is refused.

use crate::clients::{Client, Done, Stop};
use stonefold_model::Step;
use stonefold_store::Attachment;
use stonefold_types::{Kind, Name};

/// The least that such a disk has, in bytes: what a family plays on.
pub(crate) const BYTES_MIN: u64 = 64 << 10;
/// The most.
pub(crate) const BYTES_MAX: u64 = 256 << 10;

impl Client {
    /// Changes the size by dice.
    pub(crate) async fn resize(&self, disk: &Name, attachment: &Attachment) -> Done {
        let now = self.size();
        let blocks = (BYTES_MAX - BYTES_MIN) / 4096 + 1;
        let size = BYTES_MIN + 4096 * self.throw(|dice| dice.below(blocks));
        let lost = now.saturating_sub(size);
        if lost > 0 && self.throw(|dice| dice.one_in(2)) {
            return self.shrink_under_a_write(disk, attachment, size, lost).await;
        }
        self.story.lock().begin(self.id, Step::Resize(size));
        self.end_resize(self.store.resize_disk(disk, size, true).await.map(drop))
    }

    /// Both at once; which comes first is the world's choice.
    async fn shrink_under_a_write(&self, disk: &Name, attachment: &Attachment, size: u64, lost: u64) -> Done {
        let (offset, len) = self.throw(|dice| {
            let offset = dice.below(lost / 512) * 512;
            let len = 512 * (1 + dice.below(((lost - offset) / 512).min(16)));
            (size + offset, len)
        });
        let data = vec![0x77; len as usize];
        {
            let mut story = self.story.lock();
            story.begin(self.id, Step::Write { offset, data: data.clone() });
            story.begin(self.id, Step::Resize(size));
        }
        let (written, resized) =
            futures::join!(attachment.write(offset, &data, false), self.store.resize_disk(disk, size, true));
        match written {
            // Beyond the end, or become so while it waited.
            Err(error) if error.kind() == Kind::Invalid => {}
            Err(error) if error.kind() == Kind::NoSpace && self.stormy => {}
            Err(error) => return Err(self.sort("writes while its disk is resized", error)),
            Ok(()) => {}
        }
        self.end_resize(resized.map(drop))
    }

    fn end_resize(&self, result: stonefold_types::Result<()>) -> Result<(), Stop> {
        result.map_err(|e| self.sort("resizes", e))?;
        self.story.lock().acknowledge_resize(self.id);
        Ok(())
    }
}
