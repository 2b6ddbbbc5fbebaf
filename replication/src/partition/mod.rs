//! One partition as its leader and its followers see it: R1 to R26, R31 to R34.
