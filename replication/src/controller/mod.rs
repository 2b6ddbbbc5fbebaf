//! What the controller decides: R27 to R30, R35, R36, pure over the metadata image.
