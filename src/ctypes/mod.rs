//! What C sees: structures, masks, enums, status codes and callback types of the public headers.
