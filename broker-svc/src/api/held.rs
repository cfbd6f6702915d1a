//! Replies that keep their room in the budget of bodies until the transport has written their bytes, or dropped them.

use std::sync::Arc;

use http::Response;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tonic::body::Body;

use crate::broker::Room;

/// The room of a reply, on its way to what writes it.
#[derive(Clone)]
pub struct Held(Arc<Mutex<Room>>);

impl Held {
    /// The room that was taken for the reply.
    pub fn new(room: Room) -> Self {
        Self(Arc::new(Mutex::new(room)))
    }

    /// Gives back what is not in the hands of the transport: nothing more will be handed to it.
    pub fn give_back(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }
}

/// Lets each piece of a reply that came with room keep its share. The transport holds a piece until its caller takes it.
pub fn until_written(mut response: Response<Body>) -> Response<Body> {
    let Some(held) = response.extensions_mut().remove::<Held>() else { return response };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            frame.map_data(|bytes| {
                let share = held.0.lock().share(bytes.len());
                share.around(bytes)
            })
        }))
    })
}
