//! Writes a history of a log that keeps every promise:
//! `cargo run --release -p checkers --example generate_history -- OPERATIONS SEED FILE`.
#![allow(clippy::print_stderr, reason = "a program for a person")]

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [operations, seed, path] = args.as_slice() else {
        return Err("usage: generate_history OPERATIONS SEED FILE".into());
    };
    let shape = simulation::Shape::queue(seed.parse()?, operations.parse()?);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut trouble = None;
    simulation::simulate(&shape, &mut |event| {
        let written = serde_json::to_writer(&mut file, event).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|()| file.write_all(b"\n")) {
            trouble.get_or_insert(error);
        }
    });
    trouble.map_or(Ok(()), Err)?;
    file.flush()?;
    eprintln!("{path}: {} bytes", file.get_ref().metadata()?.len());
    Ok(())
}
