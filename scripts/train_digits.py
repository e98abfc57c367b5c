"""Train the embedded digits network and export it as ONNX.

The network is a small MobileNetV2-style classifier (inverted residual blocks with
linear bottlenecks) for scikit-learn's 8x8 handwritten digits. After its depthwise
convolutions it squares the ReLU, as Primer does: squares have a wide range, which is hard to
represent in 8 bits. With plain ReLU full int8 changes no prediction, so there would be nothing to
tune. It is trained on the training split only; it never sees the calibration and evaluation splits.

    python scripts/train_digits.py --output seqto/models/data/digits.onnx

Needs torch and scikit-learn, which seqto itself does not: the trained file is committed.
"""

import argparse
import io
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from seqto.datasets.digits_split import split

SEED = 0
EPOCHS = 60
BATCH = 32
EXPANSION = 4
# One inverted residual block per entry: output channels, stride.
BLOCKS = ((24, 1), (24, 1), (40, 2), (40, 1), (64, 2), (64, 1), (64, 1))
STEM = 16
HEAD = 128


class SquaredReLU(nn.Module):
    """The square of ReLU (So et al., "Primer", 2021)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return relu(x) squared."""
        return functional.relu(x) ** 2


class Bottleneck(nn.Module):
    """Inverted residual block: expand, depthwise 3x3, project without activation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * EXPANSION
        self.residual = stride == 1 and inputs == outputs
        self.expand = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(hidden)
        self.expand_act = nn.ReLU()
        self.depthwise = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(hidden)
        self.depthwise_act = SquaredReLU()
        self.project = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.project_norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = self.expand_act(self.expand_norm(self.expand(x)))
        y = self.depthwise_act(self.depthwise_norm(self.depthwise(y)))
        y = self.project_norm(self.project(y))
        return x + y if self.residual else y


class DigitsNet(nn.Module):
    """Stem, inverted residual blocks, pointwise head, global pooling, dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, STEM, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(STEM)
        self.stem_act = nn.ReLU()
        widths = (STEM, *(outputs for outputs, _ in BLOCKS))
        self.blocks = nn.Sequential(
            *(
                Bottleneck(inputs, outputs, stride)
                for inputs, (outputs, stride) in zip(widths[:-1], BLOCKS, strict=True)
            )
        )
        self.head = nn.Conv2d(widths[-1], HEAD, 1, bias=False)
        self.head_norm = nn.BatchNorm2d(HEAD)
        self.head_act = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dense = nn.Linear(HEAD, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of the ten digits."""
        x = self.stem_act(self.stem_norm(self.stem(image)))
        x = self.blocks(x)
        x = self.head_act(self.head_norm(self.head(x)))
        return self.dense(torch.flatten(self.pool(x), 1))


def augment(images: torch.Tensor) -> torch.Tensor:
    """Rotate (up to about 10 degrees), scale (10 %) and shift (1 pixel) each image at random."""
    count = len(images)
    angle = (torch.rand(count) * 2 - 1) * 0.18
    scale = 1 + (torch.rand(count) * 2 - 1) * 0.1
    # grid coordinates span -1..1 over 8 pixels, so a pixel is 0.25
    shift = (torch.rand(count, 2) * 2 - 1) * 0.25
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    theta = torch.stack([cos, -sin, shift[:, 0], sin, cos, shift[:, 1]], 1).view(count, 2, 3)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def train(images: torch.Tensor, labels: torch.Tensor) -> DigitsNet:
    """Train a freshly initialised network; the same seed gives the same network."""
    torch.manual_seed(SEED)
    model = DigitsNet()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, total_steps=EPOCHS * steps
    )
    for _ in range(EPOCHS):
        # the incomplete last batch is dropped: batch norm is noisy on a single image
        for batch in torch.randperm(len(images)).split(BATCH)[:steps]:
            loss = functional.cross_entropy(model(augment(images[batch])), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def export(model: DigitsNet, output: Path) -> None:
    """Write the network to ``output``, which is replaced only once the file is complete."""
    buffer = io.BytesIO()
    torch.onnx.export(
        model,
        (torch.zeros(1, 1, 8, 8),),
        buffer,
        dynamo=False,
        opset_version=17,
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        # PRESERVE keeps batch norms as nodes, so that seqto has to fold them
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
    )
    partial = output.with_name(output.name + ".partial")
    partial.write_bytes(buffer.getvalue())
    os.replace(partial, output)


def main() -> None:
    """Train, report the evaluation accuracy and write the ONNX file."""
    parser = argparse.ArgumentParser(description="Train and export the embedded digits network.")
    parser.add_argument("--output", type=Path, required=True, help="ONNX file to write")
    output = parser.parse_args().output

    # one thread and deterministic kernels: sums in a fixed order give a fixed result
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    splits = split()
    model = train(images[splits.training], labels[splits.training])
    with torch.no_grad():
        predicted = model(images[splits.evaluation]).argmax(1)
    correct = int((predicted == labels[splits.evaluation]).sum())
    total = len(splits.evaluation)
    print(f"evaluation accuracy {correct / total:.2%} ({correct} of {total})")
    export(model, output)
    print(f"wrote {output} ({output.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
