/* Trains the network of train_cpp through the C interface: three graphs from files, forward,
 * backward and Adam's update, and memory of the device.
 *
 *   train_c examples/data [cuda]
 *
 * The exit status is 1 where anything fails, or where fewer than 95% of the held-out images are
 * recognised in the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrograd/retrograd.h"

enum { kPixels = 64, kClasses = 10, kBatch = 100, kEpochs = 15, kHeldOut = 6, kMost = 2000 };
enum { kParameters = 4, kState = 3 * kParameters + 1, kMostOutputs = 16 };

/* Ends the program where a function of the library fails. */
static void need(rg_code code, const char* what) {
  if (code == RG_OK) return;
  rg_error error = RG_INIT(rg_error);
  rg_last_error(&error);
  fprintf(stderr, "train_c: %s: %s: %s\n", what, rg_code_name(code), error.message);
  exit(1);
}

static rg_device* device = NULL;

static void* on_device(const void* values, size_t bytes) {
  void* data = NULL;
  need(rg_device_allocate(device, bytes, &data), "memory");
  need(rg_device_copy_in(device, data, values, bytes), "copying");
  return data;
}

typedef struct step_part {
  rg_executable* executable;
  void* outputs[kMostOutputs];
  size_t num_outputs;
} step_part;

/* Loads and compiles a graph and allocates its outputs. */
static step_part load(const char* folder, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  rg_graph* graph = NULL;
  need(rg_graph_load(path, &graph), path);
  step_part part = {0};
  need(rg_executable_create(graph, device, NULL, &part.executable), path);
  part.num_outputs = rg_graph_num_outputs(graph);
  for (size_t i = 0; i < part.num_outputs; ++i) {
    rg_tensor tensor = RG_INIT(rg_tensor);
    need(rg_graph_output(graph, i, &tensor), path);
    need(rg_device_allocate(device, (size_t)tensor.bytes, &part.outputs[i]), path);
  }
  rg_graph_destroy(graph);
  return part;
}

static void run(const step_part* part, const void* const* inputs, size_t num_inputs,
                void* const* outputs) {
  rg_run run = RG_INIT(rg_run);
  run.inputs = inputs;
  run.num_inputs = num_inputs;
  run.outputs = outputs;
  run.num_outputs = part->num_outputs;
  need(rg_executable_run(part->executable, &run), "a run");
}

static void release(step_part* part) {
  rg_executable_destroy(part->executable);
  for (size_t i = 0; i < part->num_outputs; ++i) {
    need(rg_device_release(device, part->outputs[i]), "memory");
  }
}

static float images[kMost][kPixels];
static int64_t labels[kMost];
static size_t num_images = 0;

static void read_digits(const char* folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/digits.csv", folder);
  FILE* file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "train_c: cannot read %s\n", path);
    exit(1);
  }
  for (int pixel = 0; num_images < kMost && fscanf(file, "%d,", &pixel) == 1; ++num_images) {
    images[num_images][0] = (float)pixel / 16;
    for (int i = 1; i < kPixels && fscanf(file, "%d,", &pixel) == 1; ++i) {
      images[num_images][i] = (float)pixel / 16;
    }
    if (fscanf(file, "%d", &pixel) != 1) break;
    labels[num_images] = pixel;
  }
  fclose(file);
}

/* A number from 0 to 1, from a linear congruential generator. */
static float uniform(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (float)(1 << 24);
}

/* Parameter, first and second moment of each, then the step. */
static void make_state(void** state) {
  static const size_t sizes[kParameters] = {64 * 64, 64, 10 * 64, 10};
  static float values[64 * 64], zeros[64 * 64];
  for (int p = 0; p < kParameters; ++p) {
    const float reach = p % 2 == 0 ? 0.3f : 0.0f; /* sqrt(6 / 64) */
    for (size_t i = 0; i < sizes[p]; ++i) values[i] = reach * (2 * uniform() - 1);
    state[3 * p] = on_device(values, sizes[p] * sizeof(float));
    state[3 * p + 1] = on_device(zeros, sizes[p] * sizeof(float));
    state[3 * p + 2] = on_device(zeros, sizes[p] * sizeof(float));
  }
  const float one = 1;
  state[kState - 1] = on_device(&one, sizeof one);
}

static float batch_images[kBatch][kPixels];
static int64_t batch_labels[kBatch];
static void* device_images;
static void* device_labels;

static void take_batch(const size_t* order) {
  for (int i = 0; i < kBatch; ++i) {
    memcpy(batch_images[i], images[order[i]], sizeof batch_images[i]);
    batch_labels[i] = labels[order[i]];
  }
  need(rg_device_copy_in(device, device_images, batch_images, sizeof batch_images), "images");
  need(rg_device_copy_in(device, device_labels, batch_labels, sizeof batch_labels), "labels");
}

static void run_forward(const step_part* forward, void* const* state) {
  const void* inputs[] = {device_images, device_labels, state[0], state[3], state[6], state[9]};
  run(forward, inputs, 6, forward->outputs);
}

/* Forward, backward and the update from one state to another. */
static void train(const step_part* forward, const step_part* backward, const step_part* update,
                  void* const* from, void* const* to) {
  run_forward(forward, from);
  const void* saved[] = {device_images, device_labels, forward->outputs[1], forward->outputs[2],
                         from[6]};
  run(backward, saved, 5, backward->outputs);
  const void* inputs[4 * kParameters + 1];
  for (int p = 0; p < kParameters; ++p) {
    inputs[p] = from[3 * p];
    inputs[kParameters + p] = backward->outputs[p];
    inputs[2 * kParameters + p] = from[3 * p + 1];
    inputs[3 * kParameters + p] = from[3 * p + 2];
  }
  inputs[4 * kParameters] = from[kState - 1];
  run(update, inputs, 4 * kParameters + 1, to);
}

/* The share of the held-out images that are recognised, in batches; the last one is filled up. */
static double accuracy(const step_part* forward, void* const* state, const size_t* held_out,
                       size_t count) {
  size_t right = 0;
  for (size_t first = 0; first < count; first += kBatch) {
    size_t order[kBatch];
    for (size_t i = 0; i < kBatch; ++i) order[i] = held_out[first + i < count ? first + i : 0];
    take_batch(order);
    run_forward(forward, state);
    static float scores[kBatch][kClasses];
    need(rg_device_copy_out(device, scores, forward->outputs[1], sizeof scores), "scores");
    for (size_t i = 0; i < kBatch && first + i < count; ++i) {
      int best = 0;
      for (int c = 1; c < kClasses; ++c) best = scores[i][c] > scores[i][best] ? c : best;
      right += best == batch_labels[i];
    }
  }
  return (double)right / (double)count;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: train_c FOLDER [DEVICE]\n");
    return 1;
  }
  rg_device_options options = RG_INIT(rg_device_options);
  options.name = argc > 2 ? argv[2] : "host";
  need(rg_device_create(&options, &device), options.name);
  read_digits(argv[1]);
  step_part forward = load(argv[1], "digits.forward.rgt");
  step_part backward = load(argv[1], "digits.backward.rgt");
  step_part update = load(argv[1], "digits.update.rgt");
  device_images = on_device(batch_images, sizeof batch_images);
  device_labels = on_device(batch_labels, sizeof batch_labels);
  void* states[2][kState];
  make_state(states[0]);
  make_state(states[1]);

  static size_t trained[kMost], held_out[kMost];
  size_t num_trained = 0, num_held_out = 0;
  for (size_t i = 0; i < num_images; ++i) {
    if (i % kHeldOut == 0)
      held_out[num_held_out++] = i;
    else
      trained[num_trained++] = i;
  }
  size_t steps = 0;
  double reached = 0;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    for (size_t i = num_trained; i > 1; --i) { /* a random order */
      const size_t j = (size_t)(uniform() * (float)i) % i, swapped = trained[i - 1];
      trained[i - 1] = trained[j];
      trained[j] = swapped;
    }
    float loss = 0;
    for (size_t first = 0; first + kBatch <= num_trained; first += kBatch, ++steps) {
      take_batch(trained + first);
      train(&forward, &backward, &update, states[steps % 2], states[(steps + 1) % 2]);
    }
    need(rg_device_copy_out(device, &loss, forward.outputs[0], sizeof loss), "the loss");
    reached = accuracy(&forward, states[steps % 2], held_out, num_held_out);
    printf("epoch %2d: loss %.4f, %.1f%% of the held-out images recognised\n", epoch, loss,
           100 * reached);
  }

  for (int s = 0; s < 2; ++s) {
    for (int i = 0; i < kState; ++i) need(rg_device_release(device, states[s][i]), "memory");
  }
  need(rg_device_release(device, device_images), "memory");
  need(rg_device_release(device, device_labels), "memory");
  release(&forward);
  release(&backward);
  release(&update);
  rg_device_destroy(device);
  return reached < 0.95 ? 1 : 0;
}
