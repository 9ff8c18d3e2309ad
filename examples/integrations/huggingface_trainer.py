"""Hugging Face's Trainer over MPI: mpirun -n 2 python huggingface_trainer.py"""

import tempfile

import torch
import weft.integrations.transformers  # the Trainer accepts ddp_backend="weft"
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
words = torch.randint(0, 16, (64, 1)) + torch.arange(12)  # counts upwards from a random number
texts = [{"input_ids": row, "labels": row} for row in words % 16]
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=16,
        n_positions=12,
        n_embd=32,
        n_layer=2,
        n_head=2,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="weft",
        per_device_train_batch_size=16 // weft.world().size,
        num_train_epochs=3,
        learning_rate=0.01,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=texts).train()
model.eval()
with torch.no_grad():
    loss = model(input_ids=words % 16, labels=words % 16).loss
state = arguments.distributed_state
print(f"rank {arguments.process_index} of {arguments.world_size} ({state.backend}): loss {loss:.6f}")
